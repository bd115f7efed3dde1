/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/server.c - the socket, and who may come in.
 *
 * Guarantees: 0660, root and the configured group, or root alone where there is no such group; where
 * there are no more descriptors or connections, new peers wait in the kernel's queue until one of the
 * others goes, and nothing spins meanwhile; no user but root has more than a quarter of the
 * connections.
 */
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "daemon/connection.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/refusal.h"

#define DESCRIPTORS_OF_OURS 64 /* besides connections and fillings */
#define USER_SHARE 4 /* of the connections: a quarter */
#define RESUME_AFTER_US 100000 /* where other processes used up the machine's descriptors */

struct server {
	struct daemon *daemon;
	int fd;
	bool is_passed; /* the service manager's socket: its mode and group are not ours */
	sd_event_source *source;
	sd_event_source *resume;
	bool is_paused;
	bool has_told;
	unsigned int n_connections, connections_max;
	struct connection_list connections;
};

static int bind_socket(const struct runtime *runtime, int fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	mode_t umask_before;
	int r;

	/* A path by descriptor: the run-time directory's may be longer than an address. */
	snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/socket",
		 runtime->dir_fd);
	if (unlinkat(runtime->dir_fd, "socket", 0) < 0 && errno != ENOENT)
		return -errno;
	umask_before = umask(0177); /* root's alone until the group is set */
	r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	umask(umask_before);
	return r;
}

/* We hold the run-time directory's lock: a socket there is a dead one. */
static int listen_here(struct server *server)
{
	AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = bind_socket(&server->daemon->runtime, fd);
	if (r < 0)
		return r;
	if (listen(fd, SOMAXCONN) < 0)
		return -errno;
	server->fd = TAKE_FD(fd);
	return 0;
}

static int listen_passed(struct server *server)
{
	int n = sd_listen_fds(true);

	if (n < 0)
		return n;
	if (n == 0)
		return 0;
	if (n > 1 || sd_is_socket_unix(SD_LISTEN_FDS_START, SOCK_STREAM, 1, NULL, 0) <= 0)
		return -EINVAL;
	server->fd = SD_LISTEN_FDS_START;
	server->is_passed = true;
	return fcntl(server->fd, F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
}

static void pause_accepting(struct server *server, const char *why)
{
	server->is_paused = true;
	sd_event_source_set_enabled(server->source, SD_EVENT_OFF);
	if (!server->has_told)
		log_warning("new connections wait: %s (%u are open)", why, server->n_connections);
	server->has_told = true;
}

static void resume_accepting(struct server *server)
{
	if (!server->is_paused)
		return;
	server->is_paused = false;
	sd_event_source_set_enabled(server->resume, SD_EVENT_OFF);
	sd_event_source_set_enabled(server->source, SD_EVENT_ON);
}

static int resume_later(sd_event_source *source, uint64_t usec, void *arg)
{
	(void)source;
	(void)usec;
	resume_accepting(arg);
	return 0;
}

void server_forget(struct connection *connection)
{
	struct server *server = connection->daemon->server;

	TAILQ_REMOVE(&server->connections, connection, link);
	server->n_connections--;
	connection_free(connection);
	resume_accepting(server);
}

static unsigned int user_max(const struct server *server)
{
	return server->connections_max < USER_SHARE ? 1 : server->connections_max / USER_SHARE;
}

static bool has_enough(const struct server *server, uid_t uid)
{
	const struct connection *connection;
	unsigned int n = 0;

	if (uid == 0)
		return false; /* who would set things right */
	TAILQ_FOREACH(connection, &server->connections, link)
		n += connection->peer.uid == uid;
	return n >= user_max(server);
}

/* Said before the peer has asked anything: it reads it as the answer to its first call. */
static void refuse_connection(struct server *server, struct connection *connection)
{
	struct daemon *daemon = server->daemon;
	char message[128], fix[REFUSAL_TEXT_MAX];
	struct wire_reply reply = {
		.error = WIRE_REFUSED,
		.refused =
			{
				.reason = shortage_name(SHORT_LIMIT),
				.message = message,
				.page = "",
				.node = NODE_ANY,
				.fix = fix,
			},
	};

	snprintf(message, sizeof(message),
		 "user %u has %u connections already, as many as one user may",
		 connection->peer.uid, user_max(server));
	snprintf(fix, sizeof(fix),
		 "close some, or raise clients_max in %s and run: systemctl reload prezerod",
		 daemon->options.config_path);
	daemon->counters.refusals++;
	connection_reply(connection, &reply, -1);
	connection_free(connection);
}

static void add_connection(struct server *server, int fd)
{
	struct connection *connection;
	int r = connection_new(server->daemon, fd, &connection);

	if (r < 0) {
		log_warning("a connection cannot be served: %s", strerror(-r));
		return;
	}
	if (has_enough(server, connection->peer.uid)) {
		refuse_connection(server, connection);
		return;
	}
	TAILQ_INSERT_TAIL(&server->connections, connection, link);
	server->n_connections++;
}

static int accept_peers(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct server *server = arg;

	(void)source;
	(void)events;
	while (server->n_connections < server->connections_max) {
		int peer_fd = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (peer_fd >= 0) {
			add_connection(server, peer_fd);
			continue;
		}
		if (errno == EAGAIN) {
			server->has_told = false;
			return 0;
		}
		if (errno == EINTR || errno == ECONNABORTED)
			continue;
		pause_accepting(server, strerror(errno));
		sd_event_source_set_time_relative(server->resume, RESUME_AFTER_US);
		sd_event_source_set_enabled(server->resume, SD_EVENT_ONESHOT);
		return 0;
	}
	pause_accepting(server, "clients_max");
	return 0;
}

static void set_group(struct server *server)
{
	const struct group *group = getgrnam(server->daemon->config->group);
	int dir_fd = server->daemon->runtime.dir_fd;

	if (server->is_passed)
		return;
	if (!group)
		log_warning(
			"no group '%s' on this host: only root may connect (fix: groupadd --system %s, then reload)",
			server->daemon->config->group, server->daemon->config->group);
	if (fchownat(dir_fd, "socket", 0, group ? group->gr_gid : 0, AT_SYMLINK_NOFOLLOW) < 0 ||
	    fchmodat(dir_fd, "socket", group ? 0660 : 0600, 0) < 0)
		log_warning("the socket's group cannot be set: %s", strerror(errno));
}

/* Connections must leave descriptors for fillings, leases on their way out, and the daemon itself. */
static unsigned int connections_max(const struct daemon *daemon)
{
	unsigned int ours = DESCRIPTORS_OF_OURS + manager_fillings_max(daemon);
	unsigned int wanted = daemon->config->clients_max, most;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return wanted;
	/* Each may have a descriptor on its way out. */
	most = limit.rlim_cur > ours + 4 ? (limit.rlim_cur - ours) / 2 : 2;
	if (most >= wanted)
		return wanted;
	log_notice("clients_max is %u, not %u: the limit of open files is %lu", most, wanted,
		   (unsigned long)limit.rlim_cur);
	return most;
}

void server_configure(struct server *server)
{
	set_group(server);
	server->connections_max = connections_max(server->daemon);
	resume_accepting(server);
}

int server_new(struct daemon *daemon, struct server **ret)
{
	struct server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return -ENOMEM;
	server->daemon = daemon;
	server->fd = -1;
	TAILQ_INIT(&server->connections);
	r = listen_passed(server);
	if (r >= 0 && server->fd < 0)
		r = listen_here(server);
	if (r >= 0)
		r = sd_event_add_io(daemon->event, &server->source, server->fd, EPOLLIN,
				    accept_peers, server);
	if (r >= 0)
		r = sd_event_add_time(daemon->event, &server->resume, CLOCK_MONOTONIC, UINT64_MAX,
				      0, resume_later, server);
	if (r >= 0)
		r = sd_event_source_set_enabled(server->resume, SD_EVENT_OFF);
	if (r < 0) {
		server_free(server);
		return r;
	}
	server_configure(server);
	*ret = server;
	return 0;
}

struct server *server_free(struct server *server)
{
	struct connection *connection;

	if (!server)
		return NULL;
	while ((connection = TAILQ_FIRST(&server->connections))) {
		TAILQ_REMOVE(&server->connections, connection, link);
		connection_free(connection);
	}
	sd_event_source_disable_unref(server->source);
	sd_event_source_disable_unref(server->resume);
	/* The next daemon unlinks the name; until then a peer is refused rather than left waiting. */
	close_fd(server->fd);
	free(server);
	return NULL;
}

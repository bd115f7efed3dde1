/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/unit/fake_daemon.c - the thread, its poll loop, and what tests count.
 */
#include "unit.h"

#include "fake_daemon.h"

#include <dirent.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/io.h"

#define CLIENTS_MAX 64
#define SEGMENT_NAME "fake-segment"

struct client {
	int fd;
	struct wire_buffer in;
};

/* Test threads may not use cmocka's asserts: these end the program. */
#define MUST(condition)                                                                         \
	do {                                                                                    \
		if (!(condition)) {                                                             \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
			abort();                                                                \
		}                                                                               \
	} while (0)

static enum fake_verdict read_client(struct fake_daemon *daemon, struct client *client)
{
	size_t room_bytes, message_bytes;
	const char *message;
	char *room;
	ssize_t n;

	MUST(wire_buffer_room(&client->in, &room, &room_bytes) == 0);
	n = recv(client->fd, room, room_bytes, 0);
	if (n <= 0)
		return FAKE_HANG_UP;
	wire_buffer_add(&client->in, (size_t)n);
	while (wire_buffer_next(&client->in, &message, &message_bytes)) {
		enum fake_verdict verdict;

		atomic_fetch_add(&daemon->n_messages, 1);
		pthread_mutex_lock(&daemon->serving);
		verdict = daemon->serve(daemon, client->fd, message);
		pthread_mutex_unlock(&daemon->serving);
		if (verdict == FAKE_HANG_UP)
			return verdict;
	}
	return FAKE_KEEP;
}

static void *run(void *arg)
{
	struct fake_daemon *daemon = arg;
	struct client clients[CLIENTS_MAX];
	struct pollfd fds[CLIENTS_MAX + 2];
	unsigned int n = 0, i;

	for (;;) {
		fds[0] = (struct pollfd){.fd = daemon->wake_fd, .events = POLLIN};
		fds[1] = (struct pollfd){.fd = daemon->listen_fd, .events = POLLIN};
		for (i = 0; i < n; i++)
			fds[2 + i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
		if (poll(fds, 2 + n, -1) < 0) {
			MUST(errno == EINTR);
			continue;
		}
		if (fds[0].revents)
			break;
		for (i = n; i-- > 0;) {
			if (!fds[2 + i].revents || read_client(daemon, &clients[i]) == FAKE_KEEP)
				continue;
			close(clients[i].fd);
			wire_buffer_done(&clients[i].in);
			clients[i] = clients[--n];
		}
		if (fds[1].revents && n < CLIENTS_MAX) {
			int fd = accept4(daemon->listen_fd, NULL, NULL, SOCK_CLOEXEC);

			MUST(fd >= 0);
			atomic_fetch_add(&daemon->n_connections, 1);
			clients[n++] = (struct client){
				.fd = fd,
				.in = {.max_bytes = WIRE_CALL_BYTES_MAX},
			};
		}
	}
	while (n-- > 0) {
		close(clients[n].fd);
		wire_buffer_done(&clients[n].in);
	}
	return NULL;
}

void fake_resume(struct fake_daemon *daemon)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, daemon->socket_path);
	unlink(daemon->socket_path);
	daemon->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	daemon->wake_fd = eventfd(0, EFD_CLOEXEC);
	MUST(daemon->listen_fd >= 0 && daemon->wake_fd >= 0);
	MUST(bind(daemon->listen_fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	MUST(listen(daemon->listen_fd, CLIENTS_MAX) == 0);
	MUST(pthread_create(&daemon->thread, NULL, run, daemon) == 0);
}

void fake_start(struct fake_daemon *daemon, fake_serve *serve, void *arg)
{
	*daemon = (struct fake_daemon){.serve = serve, .arg = arg};
	pthread_mutex_init(&daemon->serving, NULL);
	strcpy(daemon->directory, "/tmp/prezero-fake-XXXXXX");
	MUST(mkdtemp(daemon->directory));
	snprintf(daemon->socket_path, sizeof(daemon->socket_path), "%s/socket", daemon->directory);
	fake_resume(daemon);
}

void fake_pause(struct fake_daemon *daemon)
{
	MUST(eventfd_write(daemon->wake_fd, 1) == 0);
	pthread_join(daemon->thread, NULL);
	close(daemon->listen_fd);
	close(daemon->wake_fd);
}

void fake_stop(struct fake_daemon *daemon)
{
	fake_pause(daemon);
	unlink(daemon->socket_path);
	rmdir(daemon->directory);
}

void fake_set(struct fake_daemon *daemon, fake_serve *serve, void *arg)
{
	pthread_mutex_lock(&daemon->serving);
	daemon->serve = serve;
	daemon->arg = arg;
	pthread_mutex_unlock(&daemon->serving);
}

void fake_settle(struct fake_daemon *daemon)
{
	pthread_mutex_lock(&daemon->serving);
	pthread_mutex_unlock(&daemon->serving);
}

/* A client that is gone is not the fake's business. */
void fake_send(int client_fd, const char *text, int fd)
{
	size_t text_bytes = strlen(text) + 1;
	ssize_t n;

	while (text_bytes > 0) {
		n = send_with_fd(client_fd, text, text_bytes, fd);
		if (n < 0)
			return;
		text += n;
		text_bytes -= (size_t)n;
		fd = -1;
	}
}

void fake_send_slowly(int client_fd, const char *text, int fd)
{
	const char *end = text + strlen(text) + 1;

	for (; text < end; text++) {
		if (send_with_fd(client_fd, text, 1, fd) < 0)
			return;
		fd = -1;
	}
}

void fake_reply(int client_fd, const struct wire_reply *reply, int fd)
{
	AUTO_FREE char *text = NULL;
	size_t text_bytes;

	MUST(wire_encode_reply(reply, &text, &text_bytes) == 0);
	fake_send(client_fd, text, fd);
}

int fake_segment(uint64_t bytes)
{
	int fd = memfd_create(SEGMENT_NAME, MFD_CLOEXEC);

	MUST(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	return fd;
}

void fake_lend(int client_fd, const char *message)
{
	struct wire_reply reply = {.method = WIRE_TAKE}, refusal;
	struct wire_call call;
	int fd;

	MUST(wire_decode_call(message, strlen(message), &call, &refusal) == 0);
	MUST(call.method == WIRE_TAKE);
	reply.take = (struct wire_take_reply){
		.id = "00112233445566aa",
		.path = "/run/prezero/base/lent/0-00112233445566aa",
		.page = "base",
		.page_bytes = 4096,
		.node = call.take.node.value,
		.bytes = call.take.bytes,
		.filling = call.take.partial,
	};
	fd = fake_segment((uint64_t)call.take.bytes);
	fake_reply(client_fd, &reply, fd);
	close(fd);
	wire_call_done(&call);
}

static unsigned int count(bool segments_only)
{
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *entry;
	unsigned int n = 0;

	MUST(fds);
	while ((entry = readdir(fds))) {
		char target[256] = "";

		if (entry->d_name[0] == '.')
			continue;
		if (readlinkat(dirfd(fds), entry->d_name, target, sizeof(target) - 1) < 0)
			continue;
		if (!segments_only || strstr(target, SEGMENT_NAME))
			n++;
	}
	closedir(fds);
	return n;
}

unsigned int count_fds(void)
{
	return count(false);
}

unsigned int count_segment_fds(void)
{
	return count(true);
}

unsigned int count_segment_maps(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned int n = 0;
	char line[512];

	MUST(maps);
	while (fgets(line, sizeof(line), maps)) {
		if (strstr(line, SEGMENT_NAME))
			n++;
	}
	fclose(maps);
	return n;
}

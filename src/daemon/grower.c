/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/grower.c - see grower.h.
 *
 * Guarantees: one such process at a time, which ends with the daemon, however that ends; what is asked
 * for while one runs is done by the next.
 */
#include "daemon/grower.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "daemon/daemon.h"
#include "daemon/growth.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/uevent.h"

struct grower {
	struct daemon *daemon;
	sd_event_source *uevents, *ended;
	pid_t pid; /* 0: none runs */
	bool is_due; /* again, when that one has ended */
	uint64_t memory_bytes; /* of the host, and its nodes, as they were last grown for */
	uint64_t nodes;
};

static uint64_t usable_nodes(const struct host_view *seen)
{
	uint64_t nodes = 0;

	for (unsigned int node = 0; node < seen->nodes_end; node++)
		nodes |= (uint64_t)host_view_has_node(seen, (int)node) << node;
	return nodes;
}

static bool is_wanted(const struct daemon *daemon)
{
	const struct goals *goals = &daemon->config->goals;

	for (unsigned int i = 0; i < goals->n_stocks; i++) {
		if (goals->stock[i].reserve)
			return true;
	}
	return false;
}

static int spawn(const struct daemon *daemon, pid_t *ret_pid)
{
	const struct daemon_options *options = &daemon->options;
	char pid[16];
	const char *words[10] = {"prezerod", "--grow", pid, "--runtime-dir", daemon->runtime.path};
	unsigned int n = 5;

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (!options->config_may_be_missing) {
		words[n++] = "--config";
		words[n++] = options->config_path;
	}
	if (options->sysroot) {
		words[n++] = "--sysroot";
		words[n++] = options->sysroot;
	}
	return -posix_spawn(ret_pid, "/proc/self/exe", NULL, NULL, (char **)(uintptr_t)words,
			    environ);
}

static void begin(struct grower *grower);

static int has_ended(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct grower *grower = arg;
	int status = 0;

	(void)source;
	(void)fd;
	(void)events;
	waitpid(grower->pid, &status, 0);
	grower->pid = 0;
	grower->ended = sd_event_source_disable_unref(grower->ended);
	if (status)
		log_warning("growing the kernel's pool ended with %s %d",
			    WIFSIGNALED(status) ? "signal" : "status",
			    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	manager_kick(grower->daemon);
	if (grower->is_due)
		begin(grower);
	return 0;
}

static void stop(struct grower *grower)
{
	if (!grower->pid)
		return;
	kill(grower->pid, SIGTERM);
	waitpid(grower->pid, NULL, 0);
	grower->pid = 0;
	grower->ended = sd_event_source_disable_unref(grower->ended);
}

static int watch(struct grower *grower)
{
	int fd = (int)syscall(SYS_pidfd_open, grower->pid, 0);
	int r = fd < 0 ? -errno :
			 sd_event_add_io(grower->daemon->event, &grower->ended, fd, EPOLLIN,
					 has_ended, grower);

	if (r < 0)
		close_fd(fd);
	else
		sd_event_source_set_io_fd_own(grower->ended, true);
	return r;
}

static void begin(struct grower *grower)
{
	int r;

	grower->is_due = grower->pid;
	if (grower->pid)
		return;
	grower->memory_bytes = grower->daemon->seen->total_bytes;
	grower->nodes = usable_nodes(grower->daemon->seen);
	r = spawn(grower->daemon, &grower->pid);
	if (r < 0) {
		grower->pid = 0;
	} else {
		r = watch(grower);
		if (r < 0)
			stop(grower);
	}
	if (r < 0)
		log_error("the kernel's pool cannot be grown: %s", strerror(-r));
}

/* Many messages have nothing to do with memory: it is grown only where that has changed. */
static void something_came_or_went(void *arg)
{
	struct grower *grower = arg;
	const struct host_view *seen = grower->daemon->seen;

	if (manager_look(grower->daemon) < 0)
		return;
	if (grower->memory_bytes != seen->total_bytes || grower->nodes != usable_nodes(seen))
		begin(grower);
}

static void watch_uevents(struct grower *grower)
{
	int r;

	if (!is_wanted(grower->daemon)) {
		grower->uevents = sd_event_source_disable_unref(grower->uevents);
		return;
	}
	if (grower->uevents)
		return;
	r = uevent_watch(grower->daemon->event, something_came_or_went, grower, &grower->uevents);
	if (r < 0)
		log_notice("reserve = yes does not see nodes come: reload when one has (%s)",
			   strerror(-r));
}

void grower_reconfigured(struct grower *grower)
{
	watch_uevents(grower);
	if (is_wanted(grower->daemon))
		begin(grower);
}

int grower_new(struct daemon *daemon, struct grower **ret)
{
	struct grower *grower = calloc(1, sizeof(*grower));

	if (!grower)
		return -ENOMEM;
	grower->daemon = daemon;
	grower->memory_bytes = daemon->seen->total_bytes;
	grower->nodes = usable_nodes(daemon->seen);
	watch_uevents(grower);
	*ret = grower;
	return 0;
}

struct grower *grower_free(struct grower *grower)
{
	if (grower) {
		stop(grower);
		sd_event_source_disable_unref(grower->uevents);
		free(grower);
	}
	return NULL;
}

static int grow(struct daemon *daemon)
{
	int r = host_open(daemon->options.sysroot, &daemon->host);

	if (r >= 0)
		r = host_look(daemon->host, daemon->seen);
	if (r >= 0)
		r = daemon_load_config(&daemon->options, daemon->seen, &daemon->config);
	return r < 0 ? r : growth_start(daemon);
}

int grower_main(const struct daemon_options *options, pid_t daemon_pid)
{
	struct daemon daemon = {
		.options = *options,
		.runtime = {.path = (char *)(uintptr_t)options->runtime_path, .lock_fd = -1},
		.seen = calloc(1, sizeof(*daemon.seen)),
		.net = calloc(1, sizeof(*daemon.net)),
	};
	int r = -ENOMEM;

	/* The service manager listens to the daemon alone. */
	unsetenv("NOTIFY_SOCKET");
	/* The daemon may have been killed before it could be followed. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != daemon_pid)
		_exit(EXIT_FAILURE);
	daemon.runtime.dir_fd = open(options->runtime_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (daemon.runtime.dir_fd < 0)
		r = -errno;
	else if (daemon.seen && daemon.net)
		r = grow(&daemon);
	if (r < 0)
		log_error("the kernel's pool cannot be grown: %s", strerror(-r));
	daemon.config = config_free(daemon.config);
	host_free(daemon.host);
	close_fd(daemon.runtime.dir_fd);
	free(daemon.seen);
	free(daemon.net);
	return r;
}

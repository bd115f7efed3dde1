/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/main.c - prezerod: arguments, signals, the service manager.
 *
 * Exit status: 0 stopped or done, 1 it failed, 2 bad usage or configuration.
 */
#include <argp.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <time.h>

#include "base/parse.h"
#include "daemon/daemon.h"
#include "daemon/grower.h"
#include "daemon/growth.h"
#include "daemon/log.h"

#define EXIT_USAGE 2

enum option_key { OPTION_CHECK_CONFIG = 256, OPTION_RELEASE, OPTION_SYSROOT, OPTION_GROW };

struct arguments {
	struct daemon_options options;
	bool check_config, release;
	uint64_t grow_for; /* the daemon that wants it, a process id; 0: not asked for */
};

const char *argp_program_version = "prezerod " PREZERO_VERSION;

static const struct argp_option options[] = {
	{"config", 'c', "FILE", 0, "Read FILE and FILE.d/*.conf (" CONFIG_DEFAULT_PATH ")", 0},
	{"runtime-dir", 'r', "DIR", 0, "Keep socket and mounts in DIR (" RUNTIME_DEFAULT_DIR ")",
	 0},
	{"sysroot", OPTION_SYSROOT, "DIR", 0, "Look at /sys and /proc below DIR (/)", 0},
	{"check-config", OPTION_CHECK_CONFIG, NULL, 0,
	 "Say what is wrong with the configuration, and exit", 1},
	{"release", OPTION_RELEASE, NULL, 0, "Give everything back: segments, mounts; and exit", 1},
	{"grow", OPTION_GROW, "PID", OPTION_HIDDEN, "What the daemon starts for reserve = yes", 1},
	{0},
};

static error_t parse_option(int key, char *text, struct argp_state *state)
{
	struct arguments *arguments = state->input;

	switch (key) {
	case 'c':
		arguments->options.config_path = text;
		arguments->options.config_may_be_missing = false;
		return 0;
	case 'r':
		arguments->options.runtime_path = text;
		return 0;
	case OPTION_SYSROOT:
		arguments->options.sysroot = text;
		return 0;
	case OPTION_CHECK_CONFIG:
		arguments->check_config = true;
		return 0;
	case OPTION_RELEASE:
		arguments->release = true;
		return 0;
	case OPTION_GROW:
		if (parse_u64(text, &arguments->grow_for) < 0 || !arguments->grow_for ||
		    arguments->grow_for > INT_MAX)
			argp_error(state, "--grow '%s': not a process id", text);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "unexpected argument '%s'", text);
		return EINVAL;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp argp = {
	.options = options,
	.parser = parse_option,
	.doc = "Keeps segments of huge pages allocated, placed and zeroed, and lends them.",
};

/* On a machine that cannot be looked at, sizes are those of most. */
static int check_config(const struct daemon_options *daemon_options)
{
	struct host_view *seen = calloc(1, sizeof(*seen));
	struct host *host = NULL;
	struct config *config;
	int r;

	if (!seen)
		return EXIT_FAILURE;
	if (host_open(daemon_options->sysroot, &host) < 0 || host_look(host, seen) < 0)
		*seen = (struct host_view){.base_page_bytes = 4096, .thp_bytes = 2 << 20};
	r = daemon_load_config(daemon_options, seen, &config);
	host_free(host);
	free(seen);
	if (r < 0)
		return EXIT_USAGE;
	config_free(config);
	return EXIT_SUCCESS;
}

/* What reserve=yes added goes last: until then segments have it. */
static int release_growth(const struct daemon_options *daemon_options)
{
	struct growth_release released;
	char text[BYTES_TEXT_MAX];
	struct host *host;
	int r = host_open(daemon_options->sysroot, &host);

	if (r < 0)
		return r;
	r = growth_release(host, daemon_options->runtime_path, &released);
	host_free(host);
	if (r < 0)
		return r;
	if (released.bytes)
		log_info("%s went from the kernel's pool, as it had been added",
			 format_bytes(released.bytes, text));
	if (released.n_overruled)
		log_notice("nr_hugepages of %u nodes was changed since it was grown, and left so",
			   released.n_overruled);
	rmdir(daemon_options->runtime_path); /* stays where something else stands in it */
	return 0;
}

static int release(const struct daemon_options *daemon_options)
{
	const char *path = daemon_options->runtime_path;
	struct runtime_release released;
	struct runtime runtime;
	struct stat st;
	pid_t pid = 0;
	int r;

	if (stat(path, &st) < 0 && errno == ENOENT) {
		log_info("%s is not there: nothing to release", path);
		return EXIT_SUCCESS;
	}
	r = runtime_open(path, &runtime, &pid);
	if (r == -EBUSY) {
		log_error("%s is in use by prezerod with pid %d: stop it first", path, (int)pid);
		return EXIT_FAILURE;
	}
	if (r >= 0) {
		r = runtime_release_all(&runtime, &released);
		if (r >= 0)
			r = release_growth(daemon_options);
		runtime_close(&runtime);
	}
	if (r < 0) {
		log_error("%s: %s", path, strerror(-r));
		return EXIT_FAILURE;
	}
	log_info("%u segments and %u mounts were given back", released.n_segments,
		 released.n_mounts);
	if (released.n_held)
		log_notice("%u of them are still in use: their pages go with their holders",
			   released.n_held);
	return EXIT_SUCCESS;
}

static int on_stop(sd_event_source *source, const struct signalfd_siginfo *info, void *arg)
{
	(void)arg;
	(void)info;
	sd_notify(false, "STOPPING=1");
	return sd_event_exit(sd_event_source_get_event(source), 0);
}

static int on_reload(sd_event_source *source, const struct signalfd_siginfo *info, void *arg)
{
	struct timespec now;

	(void)source;
	(void)info;
	clock_gettime(CLOCK_MONOTONIC, &now);
	sd_notifyf(false, "RELOADING=1\nMONOTONIC_USEC=%lld",
		   (long long)now.tv_sec * 1000000 + now.tv_nsec / 1000);
	daemon_reload(arg);
	sd_notify(false, "READY=1");
	return 0;
}

static int serve(struct daemon *daemon)
{
	int r;

	r = sd_event_add_signal(daemon->event, NULL, SIGTERM, on_stop, daemon);
	if (r >= 0)
		r = sd_event_add_signal(daemon->event, NULL, SIGINT, on_stop, daemon);
	if (r >= 0)
		r = sd_event_add_signal(daemon->event, NULL, SIGHUP, on_reload, daemon);
	if (r >= 0)
		r = sd_event_set_watchdog(daemon->event, true);
	if (r >= 0) {
		log_info("prezerod " PREZERO_VERSION
			 " serves %s/socket: %u page sizes, %u stocks, %u threads",
			 daemon->runtime.path, daemon->n_pools, daemon->config->goals.n_stocks,
			 daemon->n_threads);
		sd_notify(false, "READY=1");
		r = sd_event_loop(daemon->event);
	}
	if (r < 0)
		log_error("the event loop failed: %s", strerror(-r));
	return r;
}

static int run(const struct daemon_options *daemon_options)
{
	static struct daemon daemon;
	sigset_t signals;
	int r;

	/* Before any thread: they all inherit it. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN); /* pool_lease_is_open() */

	r = daemon_start(&daemon, daemon_options);
	if (r >= 0)
		r = serve(&daemon);
	daemon_stop(&daemon);
	if (r == 0)
		log_info("stopped; ready segments and leases stay");
	return r == -EINVAL ? EXIT_USAGE : r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	struct arguments arguments = {
		.options =
			{
				.config_path = CONFIG_DEFAULT_PATH,
				.config_may_be_missing = true,
				.runtime_path = RUNTIME_DEFAULT_DIR,
			},
	};

	/* Few, small allocations: one arena, and what is large goes back when it is freed. */
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 64 << 10);
	mallopt(M_TRIM_THRESHOLD, 128 << 10);
	argp_err_exit_status = EXIT_USAGE;
	argp_parse(&argp, argc, argv, 0, NULL, &arguments);
	if (arguments.check_config)
		return check_config(&arguments.options);
	if (geteuid() != 0) {
		log_error("prezerod must run as root: it mounts, and makes segments their users'");
		return EXIT_FAILURE;
	}
	if (arguments.grow_for)
		return grower_main(&arguments.options, (pid_t)arguments.grow_for) < 0 ?
			       EXIT_FAILURE :
			       EXIT_SUCCESS;
	return arguments.release ? release(&arguments.options) : run(&arguments.options);
}

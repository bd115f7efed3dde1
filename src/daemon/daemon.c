/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/daemon.c - starting, reloading and stopping.
 *
 * Guarantees: the stop is the exact reverse of the start, from wherever that came to; a reload takes
 * effect whole or not at all.
 */
#include "daemon/daemon.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include "base/io.h"
#include "daemon/clean.h"
#include "daemon/filling.h"
#include "daemon/grower.h"
#include "daemon/growth.h"
#include "daemon/headroom.h"
#include "daemon/leases.h"
#include "daemon/lending.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/pools.h"
#include "daemon/server.h"

int daemon_parse_page(const struct daemon *daemon, const char *text, struct page_size *ret)
{
	const struct host_view *seen = daemon->seen;

	if (text)
		return page_size_parse(text, seen->thp_bytes, seen->base_page_bytes, ret);
	if (!seen->default_hugetlb_bytes)
		return -EINVAL;
	*ret = (struct page_size){PAGE_HUGETLB, seen->default_hugetlb_bytes};
	return 0;
}

int daemon_load_config(const struct daemon_options *options, const struct host_view *seen,
		       struct config **ret)
{
	struct config_pages pages = {
		.thp_bytes = seen->thp_bytes,
		.base_bytes = seen->base_page_bytes,
	};
	AUTO_FREE char *error = NULL;
	int r;

	r = config_load(options->config_path, options->config_may_be_missing, pages, ret, &error);
	if (r < 0)
		log_error("%s", error ? error : strerror(-r));
	return r;
}

static void set_up_team(const struct daemon *daemon, const struct config *config,
			struct fill_config *ret)
{
	struct id_set usable = config->cpus;

	*ret = (struct fill_config){
		.n_threads = policy_threads(daemon->seen, config->n_threads),
		.cpus = config->cpus,
		.rate_bytes_per_s = config->rate_bytes_per_s,
	};
	if (ret->n_threads > FILL_THREADS_MAX)
		ret->n_threads = FILL_THREADS_MAX;
	id_set_and(&usable, &daemon->seen->cpus);
	if (!id_set_is_empty(&config->cpus) && id_set_is_empty(&usable))
		log_warning("cpus=: none of these may be used here: the threads run anywhere");
}

static int team_ended_something(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	struct daemon *daemon = arg;

	(void)source;
	(void)fd;
	(void)events;
	fill_team_reap(daemon->team);
	return 0;
}

static int start_team(struct daemon *daemon)
{
	struct fill_config fill_config;
	int r;

	set_up_team(daemon, daemon->config, &fill_config);
	daemon->n_threads = fill_config.n_threads;
	r = fill_team_start(&fill_config, &daemon->team);
	if (r < 0)
		return r;
	return sd_event_add_io(daemon->event, &daemon->team_source, fill_team_fd(daemon->team),
			       EPOLLIN, team_ended_something, daemon);
}

/* A ready segment needs none, but connections, leases on their way and fillings do. */
static void raise_descriptor_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		log_warning("the limit of open files cannot be raised: %s", strerror(errno));
}

static int open_runtime(struct daemon *daemon)
{
	const char *path = daemon->options.runtime_path;
	pid_t pid = 0;
	int r = runtime_open(path, &daemon->runtime, &pid);

	if (r == -EBUSY)
		log_error("%s is in use by prezerod with pid %d: one daemon a run-time directory",
			  path, (int)pid);
	else if (r == -EPERM)
		log_error("%s must belong to root, and nobody else may write to it", path);
	else if (r < 0)
		log_error("%s: %s", path, strerror(-r));
	return r;
}

static int look_first(struct daemon *daemon)
{
	int r = host_open(daemon->options.sysroot, &daemon->host);

	if (r < 0) {
		log_error("%s: %s", daemon->options.sysroot, strerror(-r));
		return r;
	}
	daemon->seen = calloc(1, sizeof(*daemon->seen));
	daemon->net = calloc(1, sizeof(*daemon->net));
	if (!daemon->seen || !daemon->net)
		return -ENOMEM;
	r = host_look(daemon->host, daemon->seen);
	if (r < 0)
		log_error("the host cannot be looked at: %s: %s", strerror(-r),
			  host_missing(daemon->host) ? host_missing(daemon->host) : "");
	*daemon->net = *daemon->seen;
	return r;
}

static int start_parts(struct daemon *daemon)
{
	int r;

	r = headroom_new(daemon->host, daemon->seen, &daemon->config->goals, &daemon->headroom);
	if (r >= 0)
		r = start_team(daemon);
	if (r >= 0)
		r = filling_set_new(daemon, &daemon->fillings);
	if (r >= 0)
		r = lending_new(daemon, &daemon->lending);
	if (r >= 0)
		r = leases_new(daemon, &daemon->leases);
	if (r >= 0)
		r = pools_open(daemon);
	if (r >= 0)
		r = clean_new(daemon, &daemon->clean);
	if (r >= 0)
		r = manager_new(daemon, &daemon->manager);
	if (r >= 0)
		r = server_new(daemon, &daemon->server);
	if (r >= 0)
		r = grower_new(daemon, &daemon->grower);
	if (r < 0)
		log_error("prezerod cannot start: %s", strerror(-r));
	return r;
}

int daemon_start(struct daemon *daemon, const struct daemon_options *options)
{
	int r;

	*daemon = (struct daemon){
		.options = *options,
		.runtime = {.dir_fd = -1, .lock_fd = -1},
		.started_ns = monotonic_ns(),
	};
	raise_descriptor_limit();
	r = sd_event_default(&daemon->event);
	if (r < 0)
		return r;
	r = look_first(daemon);
	if (r < 0)
		return r;
	r = daemon_load_config(options, daemon->seen, &daemon->config);
	if (r < 0)
		return -EINVAL; /* whatever it was: the administrator's to mend */
	r = open_runtime(daemon);
	if (r < 0)
		return r;
	r = growth_start(daemon);
	if (r < 0) {
		log_error("the kernel's pool cannot be grown: %s", strerror(-r));
		return r;
	}
	return start_parts(daemon);
}

void daemon_stop(struct daemon *daemon)
{
	daemon->grower = grower_free(daemon->grower);
	daemon->server = server_free(daemon->server);
	/* Ends every filling and chore, each by its own done(). */
	daemon->team_source = sd_event_source_disable_unref(daemon->team_source);
	daemon->team = fill_team_stop(daemon->team);
	daemon->manager = manager_free(daemon->manager);
	daemon->clean = clean_free(daemon->clean);
	pools_close(daemon);
	daemon->leases = leases_free(daemon->leases);
	daemon->lending = lending_free(daemon->lending);
	daemon->fillings = filling_set_free(daemon->fillings);
	daemon->headroom = headroom_free(daemon->headroom);
	runtime_close(&daemon->runtime);
	daemon->config = config_free(daemon->config);
	free(daemon->net);
	free(daemon->seen);
	daemon->host = host_free(daemon->host);
	daemon->event = sd_event_unref(daemon->event);
}

/* Whatever can fail, before anything is swapped. */
static int apply(struct daemon *daemon, const struct config *config)
{
	struct fill_config fill_config;
	int r;

	set_up_team(daemon, config, &fill_config);
	r = fill_team_configure(daemon->team, &fill_config);
	if (r < 0)
		return r;
	r = headroom_configure(daemon->headroom, daemon->seen, &config->goals);
	if (r < 0)
		return r;
	daemon->n_threads = fill_config.n_threads;
	return 0;
}

void daemon_reload(struct daemon *daemon)
{
	struct config *config;
	int r;

	r = manager_look(daemon);
	if (r >= 0)
		r = daemon_load_config(&daemon->options, daemon->seen, &config);
	if (r < 0) {
		log_error("the configuration that was in force stays");
		return;
	}
	r = apply(daemon, config);
	if (r < 0) {
		log_error("the configuration cannot be applied, and the old one stays: %s",
			  strerror(-r));
		config_free(config);
		if (apply(daemon, daemon->config) < 0)
			log_error("and not all of the old one could be put back");
		return;
	}
	config_free(daemon->config);
	daemon->config = config;
	server_configure(daemon->server);
	clean_reconfigured(daemon->clean);
	manager_reconfigured(daemon);
	grower_reconfigured(daemon->grower);
	log_info("the configuration was read anew: %u stocks", config->goals.n_stocks);
}

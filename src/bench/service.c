/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/service.c - a prezerod of the benchmark's own. */
#include "bench/service.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "base/io.h"
#include "bench/guard.h"
#include "bench/process.h"
#include "prezero.h"

#define START_PATIENCE_NS (20ULL * 1000000000)
/* The first touch of memory that a hypervisor has not backed yet runs at some 0.3 GB/s. */
#define STOCK_PATIENCE_NS (240ULL * 1000000000)
#define STUCK_PATIENCE_NS (10ULL * 1000000000)
#define PINNED_PATIENCE_NS (1ULL * 1000000000)
#define POLL_NS (3L * 1000000)

struct service {
	struct process process;
	struct prezero *connection;
	unsigned int n_threads;
	int node;
	unsigned int n_reloads; /* makes the name of each stock new */
	/* the stock that was asked for last; page NULL: none */
	const char *page;
	uint64_t segment_bytes;
	unsigned int keep;
};

static int explain(char *why, size_t why_bytes, int error, const char *format, ...) PRINTF(4, 5);
static int explain(char *why, size_t why_bytes, int error, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, why_bytes, format, args);
	va_end(args);
	return error;
}

int service_find_prezerod(char *buf, size_t buf_bytes)
{
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
	char *slash;

	if (length > 0) {
		self[length] = '\0';
		slash = strrchr(self, '/');
		if (slash)
			*slash = '\0';
		if (snprintf(buf, buf_bytes, "%s/prezerod", self) < (int)buf_bytes &&
		    access(buf, X_OK) == 0)
			return 0;
	}
	if (!program_in_path("prezerod"))
		return -ENOENT;
	snprintf(buf, buf_bytes, "prezerod");
	return 0;
}

static int write_config(const struct service *service)
{
	AUTO_FILE file = fopen(GUARD_CONFIG, "we");

	if (!file)
		return -errno;
	fprintf(file, "[daemon]\ngroup = root\nthreads = %u\n", service->n_threads);
	if (service->page)
		fprintf(file,
			"\n[stock bench-%u]\npage = %s\nnode = %d\nsegment = %" PRIu64
			"\nkeep = %u\n",
			service->n_reloads, service->page, service->node, service->segment_bytes,
			service->keep);
	return fflush(file) == EOF ? -EIO : 0;
}

static void pause_ns(long ns)
{
	nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static int connect_when_ready(struct service *service, const char *prezerod, char *why,
			      size_t why_bytes)
{
	uint64_t deadline_ns = monotonic_ns() + START_PATIENCE_NS;
	char message[256];

	for (;;) {
		int r = prezero_connect(&service->connection, service_socket(service));

		if (r == 0)
			return 0;
		process_messages(&service->process, message, sizeof(message));
		if (process_has_ended(&service->process))
			return explain(why, why_bytes, -EIO, "%s ended at its start: %s", prezerod,
				       message);
		if (monotonic_ns() > deadline_ns)
			return explain(why, why_bytes, -ETIMEDOUT, "%s does not serve (%s): %s",
				       prezerod, strerror(-r), message);
		pause_ns(POLL_NS);
	}
}

int service_start(const char *prezerod, unsigned int n_threads, int node, struct service **ret,
		  char *why, size_t why_bytes)
{
	const char *const argv[] = {prezerod,	     "--config",	(char *)GUARD_CONFIG,
				    "--runtime-dir", GUARD_RUNTIME_DIR, NULL};
	struct service *service = calloc(1, sizeof(*service));
	int r;

	if (!service)
		return explain(why, why_bytes, -ENOMEM, "out of memory");
	*service = (struct service){
		.process = {.talk_fd = -1, .messages_fd = -1},
		.n_threads = n_threads,
		.node = node,
	};
	r = write_config(service);
	if (r < 0) {
		explain(why, why_bytes, r, "cannot write %s: %s", GUARD_CONFIG, strerror(-r));
	} else {
		r = process_start(argv, &service->process);
		if (r < 0)
			explain(why, why_bytes, r, "cannot start %s: %s", prezerod, strerror(-r));
		else
			r = connect_when_ready(service, prezerod, why, why_bytes);
	}
	if (r < 0) {
		service_stop(service);
		return r;
	}
	*ret = service;
	return 0;
}

struct service *service_stop(struct service *service)
{
	if (!service)
		return NULL;
	prezero_disconnect(service->connection);
	if (service->process.pid > 0) {
		kill(service->process.pid, SIGTERM);
		process_wait(&service->process);
	}
	process_done(&service->process);
	free(service);
	return NULL;
}

const char *service_socket(const struct service *service)
{
	(void)service;
	return GUARD_RUNTIME_DIR "/socket";
}

struct prezero *service_connection(struct service *service)
{
	return service->connection;
}

static uint64_t sum_of_classes(const json_t *status, const char *key)
{
	uint64_t sum = 0;
	size_t i;
	json_t *page_class;

	json_array_foreach(json_object_get(status, "classes"), i, page_class)
		sum += (uint64_t)json_integer_value(json_object_get(page_class, key));
	return sum;
}

/* What one status says of the pool. */
struct state {
	bool is_as_asked;
	bool has_pinned; /* unlinked already, and not yet back in the kernel */
	bool is_stuck; /* short of something, and no fill is under way that would change it */
	char short_of[64];
};

static bool stock_stands(const struct service *service, const json_t *stocks)
{
	json_t *stock = json_array_get(stocks, 0);
	char name[32];

	if (!service->page)
		return json_array_size(stocks) == 0;
	snprintf(name, sizeof(name), "bench-%u", service->n_reloads);
	return json_array_size(stocks) == 1 &&
	       strcmp(json_string_value(json_object_get(stock, "name")), name) == 0 &&
	       json_integer_value(json_object_get(stock, "ready")) == (json_int_t)service->keep;
}

static struct state read_state(const struct service *service, const json_t *status,
			       bool may_be_lent)
{
	json_t *stocks = json_object_get(status, "stocks");
	const char *short_of =
		json_string_value(json_object_get(json_array_get(stocks, 0), "short_of"));
	uint64_t filling_bytes = sum_of_classes(status, "filling_bytes");
	struct state state = {
		.has_pinned = json_array_size(json_object_get(status, "pinned")) > 0,
		.is_stuck = short_of && filling_bytes == 0,
	};

	state.is_as_asked = filling_bytes == 0 && stock_stands(service, stocks) &&
			    (may_be_lent || sum_of_classes(status, "lent_bytes") == 0) &&
			    sum_of_classes(status, "ready_bytes") ==
				    service->keep * service->segment_bytes;
	snprintf(state.short_of, sizeof(state.short_of), "%s", short_of ? short_of : "");
	return state;
}

static int look(struct service *service, bool may_be_lent, struct state *ret, char *why,
		size_t why_bytes)
{
	AUTO_FREE char *text = NULL;
	char message[256];
	json_t *status;
	int r = prezero_status_json(service->connection, &text);

	if (r < 0) {
		process_messages(&service->process, message, sizeof(message));
		return explain(why, why_bytes, r, "the private prezerod went away: %s", message);
	}
	status = json_loads(text, 0, NULL);
	*ret = read_state(service, status, may_be_lent);
	json_decref(status);
	return 0;
}

static int wait_until_it_stands(struct service *service, bool may_be_lent, char *why,
				size_t why_bytes)
{
	uint64_t start_ns = monotonic_ns(), stuck_ns = start_ns, stands_ns = 0;
	struct state state;

	for (;;) {
		int r = look(service, may_be_lent, &state, why, why_bytes);
		uint64_t now_ns = monotonic_ns();

		if (r < 0)
			return r;
		if (!state.is_stuck)
			stuck_ns = now_ns;
		if (!state.is_as_asked)
			stands_ns = 0;
		else if (stands_ns == 0)
			stands_ns = now_ns;
		/* Some kernels keep counting pages that they failed to allocate: do not wait for
		 * ever for those to go. */
		if (stands_ns && (!state.has_pinned || now_ns > stands_ns + PINNED_PATIENCE_NS))
			return 0;
		if (now_ns > stuck_ns + STUCK_PATIENCE_NS || now_ns > start_ns + STOCK_PATIENCE_NS)
			return explain(why, why_bytes, -ETIMEDOUT,
				       "the stock did not stand in time%s%s",
				       state.short_of[0] ? ", short of " : "", state.short_of);
		pause_ns(POLL_NS);
	}
}

static bool is_same_page(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static int reload(struct service *service, const char *page, uint64_t segment_bytes,
		  unsigned int keep, char *why, size_t why_bytes)
{
	int r;

	if (is_same_page(page, service->page) && segment_bytes == service->segment_bytes &&
	    keep == service->keep)
		return 0;
	service->page = page;
	service->segment_bytes = segment_bytes;
	service->keep = keep;
	service->n_reloads++;
	r = write_config(service);
	if (r < 0)
		return explain(why, why_bytes, r, "cannot write %s: %s", GUARD_CONFIG,
			       strerror(-r));
	if (kill(service->process.pid, SIGHUP) < 0)
		return explain(why, why_bytes, -errno, "the private prezerod is gone");
	return 0;
}

int service_keep(struct service *service, const char *page, uint64_t segment_bytes,
		 unsigned int keep, char *why, size_t why_bytes)
{
	int r = reload(service, page, segment_bytes, keep, why, why_bytes);

	return r < 0 ? r : wait_until_it_stands(service, false, why, why_bytes);
}

int service_keep_nothing(struct service *service, char *why, size_t why_bytes)
{
	int r = reload(service, NULL, 0, 0, why, why_bytes);

	return r < 0 ? r : wait_until_it_stands(service, false, why, why_bytes);
}

int service_keep_leases(struct service *service, char *why, size_t why_bytes)
{
	int r = reload(service, NULL, 0, 0, why, why_bytes);

	return r < 0 ? r : wait_until_it_stands(service, true, why, why_bytes);
}

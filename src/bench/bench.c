/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/bench.c - `prezero bench`: options, what is borrowed, the cases in turn. */
#include "bench/bench.h"

#include <argp.h>
#include <inttypes.h>
#include <limits.h>
#include <numa.h>
#include <string.h>
#include <sys/mman.h>

#include "base/parse.h"
#include "bench/guard.h"
#include "bench/harness.h"
#include "bench/plot.h"
#include "bench/report.h"
#include "bench/service.h"
#include "bench/sweep.h"
#include "bench/work.h"
#include "host/host.h"

#define PAGE_2M (2ULL << 20)
#define PAGE_1G (1ULL << 30)
#define DEFAULT_BYTES (8ULL << 30)
#define LEAST_BYTES (256ULL << 20)
/* What the machine keeps beside the borrowed pages: other cases use up to 2 GiB. */
#define SPARE_BYTES (4ULL << 30)

enum {
	OPTION_CASE = 'c',
	OPTION_BYTES = 'b',
	OPTION_PAIRS = 'p',
	OPTION_NODE = 'n',
	OPTION_JSON = 0x100,
	OPTION_PLOT,
	OPTION_NO_RESERVE,
	OPTION_SWEEP,
};

static const struct argp_option argp_options[] = {
	{"case", OPTION_CASE, "NAME", 0, "Run this case only; may be given several times", 0},
	{"bytes", OPTION_BYTES, "SIZE", 0,
	 "Memory of the consumer (default: 8G, halved until the machine has it)", 0},
	{"pairs", OPTION_PAIRS, "N", 0,
	 "Interleaved rounds of each comparison (default: as many as each claim needs)", 0},
	{"node", OPTION_NODE, "N", 0, "NUMA node (default: the first with memory and CPUs)", 0},
	{"json", OPTION_JSON, NULL, 0, "Print one JSON object instead of the tables", 0},
	{"plot", OPTION_PLOT, "DIR", 0,
	 "Also run the case `size` and plot time against size into DIR, as SVG and PNG", 0},
	{"threads-sweep", OPTION_SWEEP, NULL, 0,
	 "Instead: how long it takes to reserve and zero memory with 1, 2, 4... threads", 0},
	{"no-reserve", OPTION_NO_RESERVE, NULL, 0,
	 "Use the free huge pages that there are; do not grow the kernel's pool", 0},
	{0},
};

static const char doc[] =
	"Do the same consumer's work cold and from the pool, in turns, and compare.\v"
	"Cases:\n"
	"  handover  map and touch huge pages, against take and map\n"
	"  qemu      QEMU from start to `quit`: nothing touched, prealloc, from the pool\n"
	"  mlock     lock anonymous memory, against a segment, of thp and base pages\n"
	"  fill      fill segments, against a bare loop of MADV_POPULATE_WRITE\n"
	"  leases    take and give one page, by eight clients at once\n"
	"  size      hand-over and QEMU start for growing sizes, for --plot\n"
	"All but `size` run unless --case says otherwise.\n\n"
	"A prezerod of the benchmark's own does the work; a running one is not used.\n"
	"As root, huge pages that are missing are borrowed from the kernel for the\n"
	"run, and everything is put back at the end, also after a signal; after\n"
	"kill -9 the next run does it. What cannot be measured is null in `figures`,\n"
	"with the reason in `reasons`.";

struct usage {
	struct bench_options options;
	bool has_cases;
};

static void want_case(struct argp_state *state, struct usage *usage, const char *name)
{
	for (unsigned int i = 0; i < CASES; i++) {
		if (strcmp(name, bench_case_name[i]) != 0)
			continue;
		usage->options.wants[i] = true;
		usage->has_cases = true;
		return;
	}
	argp_error(state, "no case '%s': see --help", name);
}

static uint64_t number(struct argp_state *state, const char *option, const char *text,
		       uint64_t least, uint64_t most)
{
	uint64_t value;

	if (parse_u64(text, &value) < 0 || value < least || value > most)
		argp_error(state, "--%s: '%s' is not a number from %" PRIu64 " to %" PRIu64, option,
			   text, least, most);
	return value;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct usage *usage = state->input;
	struct bench_options *options = &usage->options;

	switch (key) {
	case OPTION_CASE:
		want_case(state, usage, arg);
		return 0;
	case OPTION_BYTES:
		if (parse_bytes(arg, &options->bytes) < 0 || options->bytes < LEAST_BYTES ||
		    options->bytes % PAGE_2M != 0 || options->bytes > INT64_MAX)
			argp_error(state, "--bytes: '%s' is not a multiple of 2M from 256M on",
				   arg);
		return 0;
	case OPTION_PAIRS:
		options->pairs = (unsigned int)number(state, "pairs", arg, 1, SAMPLES_MAX);
		return 0;
	case OPTION_NODE:
		options->node = (int)number(state, "node", arg, 0, NODES_MAX - 1);
		return 0;
	case OPTION_JSON:
		options->json = true;
		return 0;
	case OPTION_PLOT:
		options->plot_dir = arg;
		return 0;
	case OPTION_SWEEP:
		options->sweep = true;
		return 0;
	case OPTION_NO_RESERVE:
		options->may_reserve = false;
		return 0;
	case ARGP_KEY_END:
		for (unsigned int i = 0; i < CASES && !usage->has_cases; i++)
			options->wants[i] = i != CASE_SIZE;
		if (options->plot_dir)
			options->wants[CASE_SIZE] = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void reason(char *why, size_t why_bytes, const char *format, ...) PRINTF(3, 4);
static void reason(char *why, size_t why_bytes, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, why_bytes, format, args);
	va_end(args);
}

static bool may_grow(const struct bench *bench)
{
	return geteuid() == 0 && bench->options->may_reserve;
}

/* Of the node, and not promised to somebody. */
static uint64_t free_bytes(const struct hugetlb_view *hugetlb, int node)
{
	uint64_t promised = hugetlb->reserved_pages;
	uint64_t pages = hugetlb->node[node].free_pages;

	return (pages > promised ? pages - promised : 0) * hugetlb->page_bytes;
}

/* What may be borrowed of what is available on the node. */
static uint64_t spare_bytes(const struct host_view *view, int node)
{
	uint64_t kept = view->node[node].total_bytes / 20 + SPARE_BYTES;
	uint64_t available = view->node[node].available_bytes;

	return available > kept ? available - kept : 0;
}

/* Every page is touched once: the first touch of memory that a hypervisor has not backed yet costs
 * 20 to 50 times a later one. In the kernel's pool the pages then stay as they are. */
static void warm(const struct bench *bench, uint64_t bytes)
{
	struct page_size page = {PAGE_HUGETLB, PAGE_2M};
	AUTO_FREE struct span *spans = calloc(bench->n_threads, sizeof(*spans));
	uint64_t share_bytes = bytes / bench->n_threads / PAGE_2M * PAGE_2M;
	void *address;
	double seconds;

	if (!spans || map_anonymous(page, bytes, &address) < 0)
		return;
	for (unsigned int i = 0; i < bench->n_threads; i++) {
		spans[i].address = (char *)address + i * share_bytes;
		spans[i].bytes = i + 1 < bench->n_threads ? share_bytes : bytes - i * share_bytes;
	}
	if (populate(spans, bench->n_threads, UNIT_BYTES_MIN, &seconds) == 0)
		report_note(bench->report, "warmed %.4g GiB of 2M pages in %.1f s",
			    (double)bytes / (double)PAGE_1G, seconds);
	munmap(address, bytes);
}

static uint64_t reserve(struct bench *bench, uint64_t page_bytes, uint64_t bytes)
{
	char page[BYTES_TEXT_MAX];
	uint64_t grown;
	int r = guard_reserve(bench->node, page_bytes, bytes / page_bytes, &grown);

	if (grown > 0)
		report_note(bench->report,
			    "borrowed %" PRIu64 " pages of %s on node %d for this run", grown,
			    format_bytes(page_bytes, page), bench->node);
	if (r == 0)
		return bytes;
	/* The kernel gave less: what is there now is what can be used. */
	if (host_look(bench->host, bench->view) < 0)
		return 0;
	return free_bytes(host_view_hugetlb(bench->view, page_bytes), bench->node);
}

/* What was asked for stays as it is; what was not is halved until it fits. */
static uint64_t halve_to_fit(const struct bench *bench, uint64_t wanted_bytes, uint64_t fit_bytes)
{
	while (!bench->options->bytes && wanted_bytes > fit_bytes && wanted_bytes > LEAST_BYTES)
		wanted_bytes /= 2;
	return wanted_bytes;
}

/* Decides bench->bytes and has that many free 2M pages, or says why not. */
static void choose_pages(struct bench *bench)
{
	const struct hugetlb_view *hugetlb = host_view_hugetlb(bench->view, PAGE_2M);
	uint64_t wanted = bench->options->bytes ? bench->options->bytes : DEFAULT_BYTES;
	uint64_t have, can;

	if (!hugetlb) {
		reason(bench->why_no_pages, REASON_MAX, "this host has no 2M pages");
		return;
	}
	have = free_bytes(hugetlb, bench->node);
	can = have + (may_grow(bench) ? spare_bytes(bench->view, bench->node) : 0);
	wanted = halve_to_fit(bench, wanted, can);
	if (wanted > have && wanted <= can)
		can = reserve(bench, PAGE_2M, wanted); /* the kernel may give less */
	wanted = halve_to_fit(bench, wanted, can);
	if (wanted > can) {
		reason(bench->why_no_pages, REASON_MAX,
		       "%" PRIu64 " MiB of free 2M pages are needed on node %d, %" PRIu64
		       " MiB can be had%s",
		       wanted >> 20, bench->node, can >> 20,
		       may_grow(bench) ? "" :
		       geteuid() == 0  ? " without growing the kernel's pool" :
					 " (as root they can be borrowed)");
		return;
	}
	if (!bench->options->bytes && wanted < DEFAULT_BYTES)
		report_note(bench->report, "8 GiB do not fit beside what else is needed: %.4g GiB",
			    (double)wanted / (double)PAGE_1G);
	bench->bytes = wanted;
	bench_progress(bench, "warming %.4g GiB of huge pages", (double)wanted / (double)PAGE_1G);
	warm(bench, wanted);
}

uint64_t bench_ordinary_bytes(const struct bench *bench, uint64_t wanted_bytes)
{
	uint64_t kept = bench->view->total_bytes / 20, available = 0;

	if (bench->options->bytes && bench->options->bytes < wanted_bytes)
		wanted_bytes = bench->options->bytes;
	if (host_look(bench->host, bench->view) == 0)
		available = bench->view->node[bench->node].available_bytes;
	while (wanted_bytes > LEAST_BYTES && wanted_bytes * 2 + kept > available)
		wanted_bytes /= 2;
	return wanted_bytes;
}

uint64_t bench_reserve_1g(struct bench *bench, char *why, size_t why_bytes)
{
	const struct hugetlb_view *hugetlb = host_view_hugetlb(bench->view, PAGE_1G);
	uint64_t bytes, most;

	if (!hugetlb) {
		reason(why, why_bytes, "this host has no 1G pages");
		return 0;
	}
	if (host_look(bench->host, bench->view) < 0)
		return 0;
	most = bench->bytes ? bench->bytes : DEFAULT_BYTES;
	bytes = free_bytes(hugetlb, bench->node);
	if (bytes < most && may_grow(bench)) {
		uint64_t spare = spare_bytes(bench->view, bench->node) / PAGE_1G * PAGE_1G;

		bytes = reserve(bench, PAGE_1G, bytes + spare < most ? bytes + spare : most);
	}
	bytes = (bytes < most ? bytes : most) / PAGE_1G * PAGE_1G;
	if (bytes == 0)
		reason(why, why_bytes, "no free 1G page on node %d", bench->node);
	return bytes;
}

/* On a machine with several nodes all that the benchmark does, QEMU included, stays on one. */
static int choose_node(struct bench *bench)
{
	const struct host_view *view = bench->view;
	struct id_set cpus;

	bench->node = bench->options->node;
	for (unsigned int i = 0; bench->node == NODE_ANY && i < view->nodes_end; i++)
		if (view->node[i].online && !id_set_is_empty(&view->node[i].cpus))
			bench->node = (int)i;
	if (!host_view_has_node(view, bench->node)) {
		fprintf(stderr, "prezero bench: no NUMA node %d with memory\n", bench->node);
		return -ENODEV;
	}
	cpus = view->node[bench->node].cpus;
	id_set_and(&cpus, &view->cpus);
	bench->n_threads = id_set_count(&cpus) ? id_set_count(&cpus) : 1;
	if (view->nodes_end > 1 && numa_available() >= 0) {
		struct bitmask *nodes = numa_allocate_nodemask();

		numa_bitmask_setbit(nodes, (unsigned int)bench->node);
		numa_bind(nodes);
		numa_free_nodemask(nodes);
	}
	return 0;
}

static void start_service(struct bench *bench)
{
	char prezerod[PATH_MAX];

	if (geteuid() != 0)
		reason(bench->why_no_service, REASON_MAX,
		       "needs root: a prezerod of the benchmark's own mounts its segments");
	else if (service_find_prezerod(prezerod, sizeof(prezerod)) < 0)
		reason(bench->why_no_service, REASON_MAX,
		       "no prezerod beside this program or in $PATH");
	else if (service_start(prezerod, bench->n_threads, bench->node, &bench->service,
			       bench->why_no_service, REASON_MAX) < 0)
		bench->service = NULL;
}

static void run_cases(struct bench *bench)
{
	static void (*const cases[CASES])(struct bench * bench) = {
		[CASE_HANDOVER] = case_handover, [CASE_QEMU] = case_qemu,
		[CASE_MLOCK] = case_mlock,	 [CASE_FILL] = case_fill,
		[CASE_LEASES] = case_leases,	 [CASE_SIZE] = case_size,
	};

	for (unsigned int i = 0; i < CASES; i++)
		if (bench->options->wants[i])
			cases[i](bench);
}

static void plot(struct bench *bench)
{
	char why[REASON_MAX];

	if (!bench->options->plot_dir)
		return;
	if (plot_curve(bench->report->curve, bench->options->plot_dir, why, sizeof(why)) < 0)
		report_note(bench->report, "no plots: %s", why);
	else
		report_note(bench->report, "plots: %s/{touch,qemu}.{svg,png}",
			    bench->options->plot_dir);
}

static int measure(struct bench *bench)
{
	int r = choose_node(bench);

	if (r < 0)
		return 2;
	choose_pages(bench);
	start_service(bench);
	run_cases(bench);
	plot(bench);
	bench->service = service_stop(bench->service);
	bench_progress(bench, "%s", "");
	if (bench->options->json)
		return report_print_json(bench->report, bench) < 0 ? 1 : 0;
	report_print_table(bench->report, bench);
	return 0;
}

static int bench_body(void *arg)
{
	struct report report;
	struct bench bench = {
		.options = arg, .report = &report, .is_terminal = isatty(STDERR_FILENO)};
	AUTO_FREE struct host_view *view = calloc(1, sizeof(*view));
	int r = view ? host_open(NULL, &bench.host) : -ENOMEM;

	if (r == 0) {
		bench.view = view;
		r = host_look(bench.host, view);
	}
	if (r == 0)
		r = report_init(&report);
	if (r < 0) {
		fprintf(stderr, "prezero bench: cannot look at this host: %s\n", strerror(-r));
		host_free(bench.host);
		return 1;
	}
	r = measure(&bench);
	report_done(&report);
	host_free(bench.host);
	return r;
}

int bench_main(int argc, char **argv)
{
	static const struct argp argp = {argp_options, parse_option, NULL, doc, NULL, NULL, NULL};
	struct usage usage = {.options = {.node = NODE_ANY, .may_reserve = true}};
	char prezerod[PATH_MAX] = "";
	int r;

	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &usage);
	if (usage.options.sweep && geteuid() == 0)
		return sweep_run(&usage.options);
	if (usage.options.sweep) {
		fprintf(stderr,
			"prezero bench: --threads-sweep grows the kernel's pool: use sudo\n");
		return 6;
	}
	if (geteuid() != 0)
		return bench_body(&usage.options);

	if (service_find_prezerod(prezerod, sizeof(prezerod)) < 0)
		prezerod[0] = '\0';
	r = guard_run(prezerod, bench_body, &usage.options);
	if (r == -EBUSY)
		fprintf(stderr, "prezero bench: another one is running\n");
	else if (r < 0)
		fprintf(stderr, "prezero bench: cannot work in %s: %s\n", GUARD_DIR, strerror(-r));
	return r < 0 ? 1 : r;
}

/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/report.c - what was measured, as a table and as one JSON object. */
#include "bench/report.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/parse.h"

/* Every figure, in the order in which it is printed. */
static const struct figure {
	const char *name;
	enum bench_case from;
	const char *meaning;
} figures[] = {
	{"qemu_start_over_floor", CASE_QEMU,
	 "quickest QEMU's start: from the pool / no memory touched"},
	{"qemu_start_populated_over_floor", CASE_QEMU, "the same with every page mapped at start"},
	{"qemu_prealloc_over_ours", CASE_QEMU, "prealloc with all threads / from the pool"},
	{"qemu_prealloc_one_thread_over_ours", CASE_QEMU,
	 "prealloc with one thread / from the pool"},
	{"qemu_pc_start_over_floor", CASE_QEMU, "the four of the whole QEMU, as a PC"},
	{"qemu_pc_start_populated_over_floor", CASE_QEMU, ""},
	{"qemu_pc_prealloc_over_ours", CASE_QEMU, ""},
	{"qemu_pc_prealloc_one_thread_over_ours", CASE_QEMU, ""},
	{"handover_ms_per_gib_2M", CASE_HANDOVER, "take and map, ms a GiB of 2M pages"},
	{"handover_ms_per_gib_1G", CASE_HANDOVER, "take and map, ms a GiB of 1G pages"},
	{"touch_cold_over_pool_2M", CASE_HANDOVER, "map and touch 2M pages: cold / pool"},
	{"touch_cold_over_pool_1G", CASE_HANDOVER, "map and touch 1G pages: cold / pool"},
	{"mlock_thp_cold_over_pool", CASE_MLOCK, "mlock of transparent huge pages: cold / pool"},
	{"mlock_base_cold_over_pool", CASE_MLOCK, "mlock of base pages: cold / pool"},
	{"fill_over_bare_populate", CASE_FILL, "least over the classes of the next four"},
	{"fill_over_bare_populate_2M", CASE_FILL, "bare MADV_POPULATE_WRITE / fill, 2M"},
	{"fill_over_bare_populate_1G", CASE_FILL, "the same, 1G"},
	{"fill_over_bare_populate_thp", CASE_FILL, "the same, thp"},
	{"fill_over_bare_populate_base", CASE_FILL, "the same, base"},
	{"fill_two_threads_speedup", CASE_FILL, "fill of 2M: one thread / two threads"},
	{"fill_two_threads_speedup_base", CASE_FILL, "fill of base: one thread / two threads"},
	{"fill_gb_per_s_2M", CASE_FILL, "GB/s of the fill team, all threads, 2M"},
	{"fill_gb_per_s_thp", CASE_FILL, "the same, thp"},
	{"fill_gb_per_s_base", CASE_FILL, "the same, base"},
	{"leases_per_second", CASE_LEASES, "take and give by name, one 2M page, 8 clients"},
	{"leases_unnamed_per_second", CASE_LEASES, "take and close, one 2M page, 8 clients"},
	{"take_many_over_few_segments", CASE_LEASES, "one take: many segments ready / few"},
};

int report_init(struct report *report)
{
	*report = (struct report){
		.figures = json_object(),
		.reasons = json_object(),
		.trials = json_array(),
		.notes = json_array(),
		.curve = json_array(),
	};
	if (report->figures && report->reasons && report->trials && report->notes && report->curve)
		return 0;
	report_done(report);
	return -ENOMEM;
}

void report_done(struct report *report)
{
	json_decref(report->figures);
	json_decref(report->reasons);
	json_decref(report->trials);
	json_decref(report->notes);
	json_decref(report->curve);
	*report = (struct report){0};
}

void report_figure(struct report *report, const char *name, double value)
{
	if (isfinite(value))
		json_object_set_new(report->figures, name, json_real(value));
	else
		report_no_figure(report, name, "too short to measure");
}

void report_no_figure(struct report *report, const char *name, const char *reason)
{
	json_object_set_new(report->figures, name, json_null());
	json_object_set_new(report->reasons, name, json_string(reason));
}

void report_ratio(struct report *report, const char *name, const struct trial *over,
		  const struct trial *under)
{
	const struct trial *missing = !trial_is_measured(under) ? under :
				      !trial_is_measured(over)	? over :
								  NULL;

	if (missing)
		report_no_figure(report, name,
				 missing->reason[0] ? missing->reason : "no round measured it");
	else
		report_figure(report, name,
			      series_summary(&over->series).median /
				      series_summary(&under->series).median);
}

void report_trials(struct report *report, const char *case_name, const struct trial *trials,
		   unsigned int n_trials)
{
	for (unsigned int i = 0; i < n_trials; i++) {
		struct summary s = series_summary(&trials[i].series);
		json_t *entry = json_pack("{s:s, s:s, s:s, s:i}", "case", case_name, "name",
					  trials[i].name, "what", trials[i].what, "samples",
					  (int)s.n);

		if (!entry)
			continue;
		if (trial_is_measured(&trials[i]))
			json_object_update_new(entry,
					       json_pack("{s:f, s:f, s:f}", "min_s", s.min,
							 "median_s", s.median, "max_s", s.max));
		else
			json_object_set_new(entry, "reason", json_string(trials[i].reason));
		json_array_append_new(report->trials, entry);
	}
}

void report_note(struct report *report, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	json_array_append_new(report->notes, json_string(text));
}

static void complete(struct report *report, const struct bench *bench)
{
	char reason[64];

	for (size_t i = 0; i < ARRAY_LEN(figures); i++) {
		if (json_object_get(report->figures, figures[i].name))
			continue;
		if (bench->options->wants[figures[i].from])
			snprintf(reason, sizeof(reason), "the case did not get that far");
		else
			snprintf(reason, sizeof(reason), "not asked for: --case=%s",
				 bench_case_name[figures[i].from]);
		report_no_figure(report, figures[i].name, reason);
	}
}

static void cpu_model(char *buf, size_t buf_bytes)
{
	AUTO_FILE file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(buf, buf_bytes, "unknown CPU");
	while (file && fgets(line, sizeof(line), file)) {
		char *value = strchr(line, ':');

		if (strncmp(line, "model name", 10) != 0 || !value)
			continue;
		value[strcspn(value, "\n")] = '\0';
		snprintf(buf, buf_bytes, "%s", value + 1 + strspn(value + 1, " "));
		return;
	}
}

static json_t *machine(const struct bench *bench)
{
	char cpu[128];
	struct utsname uts = {0};

	cpu_model(cpu, sizeof(cpu));
	if (uname(&uts) < 0)
		snprintf(uts.release, sizeof(uts.release), "unknown");
	return json_pack("{s:s, s:i, s:I, s:s, s:i}", "cpu", cpu, "cpus",
			 (int)id_set_count(&bench->view->cpus), "memory_bytes",
			 (json_int_t)bench->view->total_bytes, "kernel", uts.release, "nodes",
			 (int)bench->view->nodes_end);
}

int report_print_json(struct report *report, const struct bench *bench)
{
	json_t *root;
	int r;

	complete(report, bench);
	root = json_pack("{s:s, s:o, s:{s:I, s:i, s:i}, s:O, s:O, s:O, s:O, s:O}", "version",
			 PREZERO_VERSION, "machine", machine(bench), "settings", "bytes",
			 (json_int_t)bench->bytes, "node", bench->node, "threads",
			 (int)bench->n_threads, "figures", report->figures, "reasons",
			 report->reasons, "trials", report->trials, "curve", report->curve, "notes",
			 report->notes);
	if (!root)
		return -ENOMEM;
	r = json_dumpf(root, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	json_decref(root);
	if (r < 0 || putchar('\n') == EOF || fflush(stdout) == EOF)
		return -EIO;
	return 0;
}

/* "48.1 ms": three digits and a unit that a person reads without counting zeros. */
static const char *format_seconds(double seconds, char buf[24])
{
	double value = seconds >= 1 ? seconds : seconds >= 1e-3 ? seconds * 1e3 : seconds * 1e6;
	const char *unit = seconds >= 1 ? "s" : seconds >= 1e-3 ? "ms" : "us";

	snprintf(buf, 24, "%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, unit);
	return buf;
}

static void print_trials(const struct report *report)
{
	char min[24], median[24], max[24];
	size_t i;
	json_t *entry;

	printf("%-34s %10s %10s %10s %5s\n", "work", "median", "min", "max", "runs");
	json_array_foreach(report->trials, i, entry) {
		const char *name = json_string_value(json_object_get(entry, "name"));
		const char *reason = json_string_value(json_object_get(entry, "reason"));

		if (reason) {
			printf("%-34s not measured: %s\n", name, reason);
			continue;
		}
		printf("%-34s %10s %10s %10s %5d\n", name,
		       format_seconds(json_real_value(json_object_get(entry, "median_s")), median),
		       format_seconds(json_real_value(json_object_get(entry, "min_s")), min),
		       format_seconds(json_real_value(json_object_get(entry, "max_s")), max),
		       (int)json_integer_value(json_object_get(entry, "samples")));
	}
}

void report_print_table(struct report *report, const struct bench *bench)
{
	char cpu[128], bytes[BYTES_TEXT_MAX], memory[BYTES_TEXT_MAX];
	size_t i;
	json_t *note;

	complete(report, bench);
	cpu_model(cpu, sizeof(cpu));
	printf("prezero %s on %s, %u CPUs, %s of memory", PREZERO_VERSION, cpu,
	       id_set_count(&bench->view->cpus),
	       format_bytes_short(bench->view->total_bytes, memory));
	if (bench->bytes)
		printf("; %s of 2M pages on node %d", format_bytes(bench->bytes, bytes),
		       bench->node);
	printf("\n");
	json_array_foreach(report->notes, i, note)
		printf("  %s\n", json_string_value(note));
	printf("\n");
	if (json_array_size(report->trials) > 0)
		print_trials(report);

	printf("\n%-34s %10s\n", "figure", "value");
	for (i = 0; i < ARRAY_LEN(figures); i++) {
		const char *name = figures[i].name;
		json_t *value = json_object_get(report->figures, name);

		if (!bench->options->wants[figures[i].from])
			continue;
		if (json_is_real(value))
			printf("%-34s %10.4g   %s\n", name, json_real_value(value),
			       figures[i].meaning);
		else
			printf("%-34s %10s   %s\n", name, "-",
			       json_string_value(json_object_get(report->reasons, name)));
	}
	fflush(stdout);
}

// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * cli/boot_args.c - `prezero boot-args`: the kernel parameters for a pool that stands from boot on, and
 * what the last boot took.
 *
 * Nothing is written but one drop-in, and that only after asking.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/io.h"
#include "cli/json.h"
#include "cli/pages.h"
#include "cli/text.h"
#include "fill/fill.h"
#include "policy/policy.h"

#define DROP_IN "etc/default/grub.d/prezero.cfg"
#define ARGS_BYTES 2048
#define GIGANTIC_BYTES (1ULL << 30)

struct boot_args {
	struct session *session;
	struct pages_wish wish;
	const char *sweep_path;
	bool grub, yes, log;
};

enum { OPTION_GRUB = 0x200, OPTION_YES, OPTION_LOG, OPTION_SWEEP };

static const struct argp_option options[] = {
	{"sweep", OPTION_SWEEP, "FILE", 0,
	 "As many threads as the sweep that `prezero bench` printed to FILE recommends", 0},
	{"grub", OPTION_GRUB, 0, 0, "Write them to /" DROP_IN ", after asking", 0},
	{"yes", OPTION_YES, 0, 0, "With --grub: do not ask", 0},
	{"log", OPTION_LOG, 0, 0, "Instead, show what the kernel logged of huge pages at boot", 0},
	{0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct boot_args *boot = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &boot->wish;
		return 0;
	case OPTION_SWEEP:
		boot->sweep_path = arg;
		return 0;
	case OPTION_GRUB:
		boot->grub = true;
		return 0;
	case OPTION_YES:
		boot->yes = true;
		return 0;
	case OPTION_LOG:
		boot->log = true;
		return 0;
	case ARGP_KEY_END:
		if (boot->log == (boot->wish.size_text != NULL))
			argp_error(state, boot->log ? "--log takes no SIZE" : "SIZE is missing");
		if (boot->sweep_path && boot->wish.goal.n_threads)
			argp_error(state, "--threads and --sweep: one of them is enough");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int open_root(const struct boot_args *boot)
{
	const char *root = boot->wish.sysroot ? boot->wish.sysroot : "/";

	return open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* hugepage_alloc_threads= came with 6.15. Unknown parameters do no harm, but say nothing either. */
static bool knows_threads(int root_fd)
{
	char release[128];
	unsigned int major = 0, minor = 0;

	if (read_file_at(root_fd, "proc/sys/kernel/osrelease", release, sizeof(release)) < 0 ||
	    sscanf(release, "%u.%u", &major, &minor) != 2)
		return false;
	return major > 6 || (major == 6 && minor >= 15);
}

/* Node by node where there are several; that form came with 5.16. */
static void write_args(const struct boot_args *boot, int root_fd, char args[ARGS_BYTES])
{
	const struct reserve_plan *plan = &boot->wish.plan;
	const struct host_view *view = boot->wish.view;
	char page[BYTES_TEXT_MAX];
	unsigned int n_nodes = 0;
	bool is_first = true;
	int used;

	for (unsigned int node = 0; node < view->nodes_end; node++)
		n_nodes += view->node[node].online;
	used = snprintf(args, ARGS_BYTES,
			"hugepagesz=%s hugepages=", format_bytes(boot->wish.goal.page_bytes, page));
	for (int node = 0; node < NODES_MAX; node++) {
		for (unsigned int i = 0; i < plan->n_nodes; i++) {
			if (plan->node[i].node != node)
				continue;
			if (n_nodes > 1)
				used += snprintf(args + used, ARGS_BYTES - (size_t)used,
						 "%s%d:", is_first ? "" : ",", node);
			used += snprintf(args + used, ARGS_BYTES - (size_t)used, "%" PRIu64,
					 plan->node[i].wanted_pages);
			is_first = false;
		}
	}
	/* The kernel allocates gigantic pages at boot in its own way. */
	if (boot->wish.goal.page_bytes < GIGANTIC_BYTES && knows_threads(root_fd))
		snprintf(args + used, ARGS_BYTES - (size_t)used, " hugepage_alloc_threads=%u",
			 policy_threads(view, boot->wish.goal.n_threads));
}

static bool ask(const struct boot_args *boot)
{
	char answer[8] = "";

	if (boot->yes)
		return true;
	fprintf(stderr, "Write /" DROP_IN "? [y/N] ");
	fflush(stderr);
	return fgets(answer, sizeof(answer), stdin) && (answer[0] == 'y' || answer[0] == 'Y');
}

static int write_drop_in(const struct boot_args *boot, int root_fd, const char *args)
{
	char text[ARGS_BYTES + 256];
	int r;

	if (!ask(boot))
		return session_fail_text(boot->session, -EINVAL, "nothing was written");
	if (faccessat(root_fd, "etc/default", F_OK, 0) < 0)
		return session_fail_text(
			boot->session, -EINVAL,
			"/etc/default is not there: this system does not boot "
			"through GRUB's configuration: pass the parameters by hand");
	(void)mkdirat(root_fd, "etc/default/grub.d", 0755);
	snprintf(text, sizeof(text),
		 "# Written by prezero boot-args; remove it to undo.\n"
		 "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT %s\"\n",
		 args);
	r = replace_file_at(root_fd, DROP_IN, text, 0644);
	if (r < 0)
		return session_fail_text(boot->session, r, "/" DROP_IN ": %s", strerror(-r));
	fprintf(stderr, "Written; run `update-grub`, then reboot. `prezero boot-args --log` shows "
			"what it took.\n");
	return STATUS_DONE;
}

/* The thread count that was measured to be worth while. */
static int read_sweep(struct boot_args *boot)
{
	json_error_t error;
	AUTO_JSON sweep = json_load_file(boot->sweep_path, 0, &error);
	uint64_t n_threads = member_u64(json_object_get(sweep, "figures"), "recommended_threads");

	if (!n_threads || n_threads > FILL_THREADS_MAX)
		return session_fail_text(boot->session, -EINVAL,
					 "--sweep '%s': %s: write it with `prezero bench "
					 "--threads-sweep --json`",
					 boot->sweep_path,
					 sweep ? "no figures.recommended_threads" : error.text);
	boot->wish.goal.n_threads = (unsigned int)n_threads;
	return STATUS_DONE;
}

static int decide_and_print(struct boot_args *boot)
{
	struct session *session = boot->session;
	char args[ARGS_BYTES];
	AUTO_FD root_fd = -1;
	int status = boot->sweep_path ? read_sweep(boot) : STATUS_DONE;

	if (status == STATUS_DONE)
		status = pages_decide(&boot->wish);
	if (status != STATUS_DONE)
		return status;
	root_fd = open_root(boot);
	write_args(boot, root_fd, args);
	if (session->json) {
		AUTO_JSON object = json_pack("{s:s}", "arguments", args);

		print_json(object);
	} else {
		puts(args);
	}
	status = session_flush(session);
	return status == STATUS_DONE && boot->grub ? write_drop_in(boot, root_fd, args) : status;
}

static int print_log(struct boot_args *boot)
{
	AUTO_FREE char *text = NULL;
	AUTO_JSON lines = json_array();
	char *save = NULL;
	int r = host_open(boot->wish.sysroot, &boot->wish.host);

	if (!r)
		r = host_read_log(boot->wish.host, &text);
	if (r < 0)
		return session_fail_text(boot->session, -EPERM,
					 "cannot read the kernel's log: %s: use sudo",
					 strerror(-r));
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *what = strstr(line, "HugeTLB: ");

		if (!what)
			continue;
		json_array_append_new(lines, json_string(what));
		if (!boot->session->json) {
			print_safe(stdout, what);
			putchar('\n');
		}
	}
	if (boot->session->json)
		print_json(lines);
	else if (!json_array_size(lines))
		fprintf(stderr, "%s: the kernel's log has nothing of huge pages (any more)\n",
			boot->session->command);
	return session_flush(boot->session);
}

int cmd_boot_args(int argc, char **argv)
{
	static const struct argp argp = {
		.options = options,
		.parser = parse,
		.args_doc = "SIZE\n--log",
		.doc = "Print the kernel parameters for a pool of SIZE from boot on, when memory is not "
		       "fragmented yet.",
		.children = pages_options,
	};
	struct session session = {.command = argv[0]};
	AUTO_FREE struct boot_args *boot = calloc(1, sizeof(*boot));
	int status;

	if (!boot)
		return session_fail_text(&session, -ENOMEM, "%s", strerror(ENOMEM));
	boot->session = boot->wish.session = &session;
	argp_parse(&argp, argc, argv, 0, NULL, boot);
	status = boot->log ? print_log(boot) : decide_and_print(boot);
	pages_done(&boot->wish);
	return status;
}

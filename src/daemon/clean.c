/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/clean.c - free pages of the kernel's own pool, zeroed in place as [clean] wants.
 *
 * A class with a target keeps its file open: to be told of dirty pages, and to ask how many there are.
 * The team zeroes them in the background, in jobs that are short enough for fills to get their turn.
 * Only a target below "max" needs a look now and then, and only while dirty pages are left: that clean
 * ones were taken is not told by the kernel. The looks double their distance while nothing changes.
 *
 * Guarantees: at most one job a class; a class that fails is left alone for a while, and told once.
 */
#include "daemon/clean.h"

#include <string.h>
#include <sys/epoll.h>

#include "base/io.h"
#include "daemon/log.h"
#include "daemon/manager.h"
#include "daemon/uevent.h"

#define JOB_BYTES_MAX (16ULL << 30)
#define LOOK_FIRST_NS 1000000000ULL
#define LOOK_LAST_NS 60000000000ULL
#define RETRY_FIRST_NS 1000000000ULL
#define RETRY_LAST_NS 60000000000ULL
#define LINE_INTERVAL_NS 10000000000ULL
#define TIMER_ACCURACY_US 100000

struct clean_class {
	struct clean_class *next;
	struct daemon *daemon;
	struct page_class page_class;
	uint64_t target_bytes; /* 0: none any more */
	int fd; /* the kernel file; -1: there is none */
	bool is_missing_told;
	sd_event_source *event; /* of the file */
	sd_event_source *timer;
	struct fill_job *job;
	/* Jobs one after the other: what progress and ETA are about. */
	uint64_t round_began_ns, round_bytes; /* by those that have ended */
	uint64_t left_bytes; /* for those to come */

	uint64_t look_ns; /* the distance to the next look while nothing changes, */
	uint64_t seen_free_pages, seen_dirty_pages; /* from this */

	/* Zeroed and not yet told in a line. */
	uint64_t pages, busy_ns;
	unsigned int threads;
	uint64_t line_ns; /* of the last one */

	int error; /* of the last failure; 0 since a success */
	uint64_t retry_ns, back_off_ns;
};

struct clean_set {
	struct daemon *daemon;
	struct clean_class *classes;
	sd_event_source *uevents; /* while there is any target */
	bool is_uevent_told;
};

static void evaluate(struct clean_class *class);

int clean_new(struct daemon *daemon, struct clean_set **ret)
{
	struct clean_set *set = calloc(1, sizeof(*set));

	if (!set)
		return -ENOMEM;
	set->daemon = daemon;
	clean_reconfigured(set);
	*ret = set;
	return 0;
}

static void close_file(struct clean_class *class)
{
	class->event = sd_event_source_disable_unref(class->event);
	class->fd = close_fd(class->fd);
}

struct clean_set *clean_free(struct clean_set *set)
{
	struct clean_class *class;

	if (!set)
		return NULL;
	while ((class = set->classes)) {
		set->classes = class->next;
		close_file(class);
		sd_event_source_disable_unref(class->timer);
		free(class);
	}
	sd_event_source_disable_unref(set->uevents);
	free(set);
	return NULL;
}

static void wake_at(struct clean_class *class, uint64_t at_ns)
{
	sd_event_source_set_time(class->timer, at_ns / 1000 + 1);
	sd_event_source_set_enabled(class->timer, SD_EVENT_ONESHOT);
}

/* Telling. */

static void tell_zeroed(struct clean_class *class)
{
	uint64_t bytes = class->pages * class->page_class.page.bytes;
	char class_text[CLASS_TEXT_MAX], bytes_text[BYTES_TEXT_MAX];
	double seconds = (double)class->busy_ns / 1e9;

	log_info("zeroed %s: %lu pages, %s in %.3f s, %.2f GB/s, %u threads",
		 page_class_format(class->page_class, class_text), (unsigned long)class->pages,
		 format_bytes_short(bytes, bytes_text), seconds,
		 seconds > 0 ? (double)bytes / 1e9 / seconds : 0.0, class->threads);
	class->line_ns = monotonic_ns();
	class->pages = 0;
	class->busy_ns = 0;
	class->threads = 0;
}

static void note_failure(struct clean_class *class, int error)
{
	char class_text[CLASS_TEXT_MAX];

	class->back_off_ns = class->back_off_ns ? class->back_off_ns * 2 : RETRY_FIRST_NS;
	if (class->back_off_ns > RETRY_LAST_NS)
		class->back_off_ns = RETRY_LAST_NS;
	class->retry_ns = monotonic_ns() + class->back_off_ns;
	if (error && class->error != error)
		log_warning("zeroing %s fails: %s (zeroable_hugepages)",
			    page_class_format(class->page_class, class_text), strerror(-error));
	class->error = error;
}

static void note_success(struct clean_class *class)
{
	class->error = 0;
	class->retry_ns = 0;
	class->back_off_ns = 0;
}

/* Zeroing. */

static int64_t zero_unit(void *arg, uint64_t offset_bytes, uint64_t unit_bytes)
{
	const struct clean_class *class = arg;
	uint64_t page_bytes = class->page_class.page.bytes;
	int64_t pages = host_zero(class->daemon->host, class->page_class, unit_bytes / page_bytes);

	(void)offset_bytes;
	return pages > 0 ? pages * (int64_t)page_bytes : pages;
}

static void job_done(void *arg, struct fill_job *job, int result)
{
	struct clean_class *class = arg;
	struct fill_progress progress;

	fill_job_progress(job, &progress);
	class->job = NULL;
	class->round_bytes += progress.done_bytes;
	class->pages += progress.done_bytes / class->page_class.page.bytes;
	class->busy_ns += progress.elapsed_ns;
	if (progress.threads_used > class->threads)
		class->threads = progress.threads_used;
	if (result == -ECANCELED) {
		manager_kick(class->daemon); /* the target is another, or the daemon stops */
		return;
	}
	if (result == -ENODEV || result == -ENOENT) {
		close_file(class);
		manager_kick(class->daemon);
		return;
	}
	/* Dirty pages that do not become clean are left alone for a while as well. */
	if (result < 0 || !progress.done_bytes)
		note_failure(class, result);
	else
		note_success(class);
	evaluate(class);
}

static void start_job(struct clean_class *class, uint64_t pages)
{
	struct daemon *daemon = class->daemon;
	uint64_t page_bytes = class->page_class.page.bytes;
	uint64_t pages_max = JOB_BYTES_MAX > page_bytes ? JOB_BYTES_MAX / page_bytes : 1;
	struct fill_request request = {
		.fd = -1,
		.length_bytes = (pages < pages_max ? pages : pages_max) * page_bytes,
		.page_class = class->page_class,
		.node_cpus = daemon->seen->node[class->page_class.node].cpus,
		.priority = FILL_STOCK,
		.work = zero_unit,
		.done = job_done,
		.arg = class,
	};
	int r;

	if (!class->round_began_ns) {
		class->round_began_ns = monotonic_ns();
		class->round_bytes = 0;
	}
	class->left_bytes = pages * page_bytes - request.length_bytes;
	r = fill_team_submit(daemon->team, &request, &class->job);
	if (r < 0) {
		note_failure(class, r);
		wake_at(class, class->retry_ns);
	}
}

/* Free pages of the class; 0 where that cannot be known. */
static uint64_t count_free(const struct clean_class *class)
{
	struct host_view *seen = class->daemon->seen;
	const struct hugetlb_view *size = host_view_hugetlb(seen, class->page_class.page.bytes);

	if (!size || host_look_headroom(class->daemon->host, class->page_class, seen) < 0)
		return 0;
	return size->node[class->page_class.node].free_pages;
}

/* When to look again at a class that is as clean as wanted. */
static uint64_t next_look_ns(struct clean_class *class, uint64_t free_pages, uint64_t dirty_pages)
{
	bool is_as_it_was = free_pages == class->seen_free_pages &&
			    dirty_pages == class->seen_dirty_pages;

	class->look_ns = is_as_it_was && class->look_ns ? 2 * class->look_ns : LOOK_FIRST_NS;
	if (class->look_ns > LOOK_LAST_NS)
		class->look_ns = LOOK_LAST_NS;
	class->seen_free_pages = free_pages;
	class->seen_dirty_pages = dirty_pages;
	return monotonic_ns() + class->look_ns;
}

/* Whatever happened: what is to be done now, and when to look again. */
static void evaluate(struct clean_class *class)
{
	uint64_t free_pages, dirty_pages, pages, now_ns = monotonic_ns(), wake_ns = UINT64_MAX;
	int r = class->fd < 0 ? 0 : host_read_zeroable(class->fd, &dirty_pages);

	/* The event is over only when the file was read. */
	if (r < 0) {
		close_file(class);
		if (r == -ENODEV)
			manager_kick(class->daemon);
		else
			note_failure(class, r);
	}
	if (class->pages && now_ns - class->line_ns >= LINE_INTERVAL_NS)
		tell_zeroed(class);
	sd_event_source_set_enabled(class->timer, SD_EVENT_OFF);
	if (class->job)
		return;
	if (class->fd < 0 || !class->target_bytes) {
		class->round_began_ns = 0;
		return;
	}
	free_pages = class->target_bytes == UNLIMITED ? 0 : count_free(class);
	pages = policy_clean_pages(class->page_class.page.bytes, free_pages, dirty_pages,
				   class->target_bytes);
	if (pages && now_ns >= class->retry_ns) {
		start_job(class, pages);
		return;
	}
	class->round_began_ns = 0;
	if (pages)
		wake_ns = class->retry_ns;
	else if (dirty_pages)
		wake_ns = next_look_ns(class, free_pages, dirty_pages);
	if (class->pages && class->line_ns + LINE_INTERVAL_NS < wake_ns)
		wake_ns = class->line_ns + LINE_INTERVAL_NS;
	if (wake_ns != UINT64_MAX)
		wake_at(class, wake_ns);
}

static int timer_due(sd_event_source *source, uint64_t usec, void *arg)
{
	(void)source;
	(void)usec;
	evaluate(arg);
	return 0;
}

static int file_event(sd_event_source *source, int fd, uint32_t events, void *arg)
{
	(void)source;
	(void)fd;
	(void)events;
	evaluate(arg);
	return 0;
}

/* Files and targets. */

static void open_file(struct clean_class *class)
{
	char name[CLASS_TEXT_MAX];
	int r;

	page_class_format(class->page_class, name);
	class->fd = host_open_zeroable(class->daemon->host, class->page_class);
	if (class->fd < 0) {
		if (!class->is_missing_told)
			log_notice(
				"[clean] %s waits: %s (fix: modprobe prezero, or a kernel that brings the file); what the stocks keep ready is not affected",
				name,
				class->fd == -ENOENT ? "this kernel has no zeroable_hugepages" :
						       strerror(-class->fd));
		class->is_missing_told = true;
		class->fd = -1;
		return;
	}
	if (class->is_missing_told)
		log_notice("[clean] %s: zeroable_hugepages is there", name);
	class->is_missing_told = false;
	r = sd_event_add_io(class->daemon->event, &class->event, class->fd, EPOLLPRI, file_event,
			    class);
	if (r < 0)
		log_warning("[clean] %s: zeroable_hugepages cannot be watched: %s", name,
			    strerror(-r));
}

static struct clean_class *find_class(struct clean_set *set, struct page_class page_class)
{
	struct clean_class *class = set->classes;

	while (class && !page_class_equal(class->page_class, page_class))
		class = class->next;
	return class;
}

static struct clean_class *add_class(struct clean_set *set, struct page_class page_class)
{
	struct clean_class *class = calloc(1, sizeof(*class));

	if (!class)
		return NULL;
	class->daemon = set->daemon;
	class->page_class = page_class;
	class->fd = -1;
	if (sd_event_add_time(set->daemon->event, &class->timer, CLOCK_MONOTONIC, UINT64_MAX,
			      TIMER_ACCURACY_US, timer_due, class) < 0 ||
	    sd_event_source_set_enabled(class->timer, SD_EVENT_OFF) < 0) {
		sd_event_source_disable_unref(class->timer);
		free(class);
		return NULL;
	}
	class->next = set->classes;
	set->classes = class;
	return class;
}

static void look_at(struct clean_set *set, struct page_class page_class)
{
	uint64_t target_bytes = config_clean_bytes(set->daemon->config, page_class), ignored;
	struct clean_class *class = find_class(set, page_class);

	if (!class && target_bytes)
		class = add_class(set, page_class);
	if (!class)
		return;
	if (class->job && class->target_bytes != target_bytes)
		fill_job_cancel(class->job);
	class->target_bytes = target_bytes;
	/* One that was removed and made anew is another file. */
	if (class->fd >= 0 && (!target_bytes || host_read_zeroable(class->fd, &ignored) < 0))
		close_file(class);
	if (class->fd < 0 && target_bytes)
		open_file(class);
	evaluate(class);
}

static void something_came_or_went(void *arg)
{
	struct clean_set *set = arg;

	manager_kick(set->daemon);
}

static void watch_uevents(struct clean_set *set)
{
	int r;

	if (!set->daemon->config->n_clean_targets) {
		set->uevents = sd_event_source_disable_unref(set->uevents);
		return;
	}
	if (set->uevents)
		return;
	r = uevent_watch(set->daemon->event, something_came_or_went, set, &set->uevents);
	if (r < 0 && !set->is_uevent_told)
		log_notice("[clean] does not see modules come: reload after modprobe prezero (%s)",
			   strerror(-r));
	set->is_uevent_told = r < 0;
}

void clean_look(struct clean_set *set)
{
	const struct host_view *seen = set->daemon->seen;

	watch_uevents(set);
	if (!set->daemon->config->n_clean_targets && !set->classes)
		return;
	for (unsigned int i = 0; i < seen->n_hugetlb; i++) {
		struct page_size page = {PAGE_HUGETLB, seen->hugetlb[i].page_bytes};

		for (unsigned int node = 0; node < seen->nodes_end; node++) {
			if (host_view_has_node(seen, node))
				look_at(set, (struct page_class){page, node});
		}
	}
}

bool clean_next_progress(const struct clean_set *set, unsigned int *cursor,
			 struct filling_progress *ret)
{
	const struct clean_class *class = set->classes;
	struct fill_progress progress;

	for (unsigned int i = 0; class && i < *cursor; i++)
		class = class->next;
	for (; class && !class->job; class = class->next)
		++*cursor;
	if (!class)
		return false;
	++*cursor;
	fill_job_progress(class->job, &progress);
	*ret = (struct filling_progress){
		.page_class = class->page_class,
		.done_bytes = class->round_bytes + progress.done_bytes,
		.total_bytes = class->round_bytes + progress.total_bytes + class->left_bytes,
		.elapsed_ns = monotonic_ns() - class->round_began_ns,
	};
	return true;
}

static void tell_unknown(const struct clean_set *set, const struct clean_target *target)
{
	const struct host_view *seen = set->daemon->seen;
	char name[CLASS_TEXT_MAX];

	if (target->bytes &&
	    (!host_view_hugetlb(seen, target->page.bytes) ||
	     (target->node != NODE_ANY && !host_view_has_node(seen, target->node))))
		log_warning(
			"[clean] %s: there is no such page class on this host",
			page_class_format((struct page_class){target->page, target->node}, name));
}

void clean_reconfigured(struct clean_set *set)
{
	const struct config *config = set->daemon->config;

	for (unsigned int i = 0; i < config->n_clean_targets; i++)
		tell_unknown(set, &config->clean_target[i]);
	for (struct clean_class *class = set->classes; class; class = class->next) {
		class->is_missing_told = false;
		note_success(class);
	}
	set->is_uevent_told = false;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * The self-test at load, which does with one page what consumers will do with all:
 *
 *	dirty it, zero it, fault it in: it must be zero, without the kernel zeroing it again;
 *	dirty it, free it: it must not be marked any more;
 *	fault it in again: it must be zero.
 *
 * It runs in the loading task's address space, through the kernel's own paths, on the smallest size
 * that has a page to spare. Where none has, it runs as soon as somebody wants pages zeroed, and
 * before that no page is marked. If it fails the module does not load, or zeroes nothing.
 */
#include <linux/err.h>
#include <linux/file.h>
#include <linux/hugetlb.h>
#include <linux/mman.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/static_call.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "compat.h"
#include "mark.h"
#include "prezero.h"

#define PATTERN 0xA5
#define ATTEMPTS 8

/* Written and read in every base page: those are zeroed whole, so this tells, and is quick. */
#define SAMPLE_BYTES 64

/* Another task has had the page in question. */
#define TRY_AGAIN 1

static DEFINE_MUTEX(selftest_mutex);
static bool passed, failed;

DEFINE_STATIC_CALL_NULL(kernel_file_setup, hugetlb_file_setup);

bool selftest_passed(void)
{
	return READ_ONCE(passed);
}

/* A mapping of one huge page, for this task alone. */
struct trial {
	struct hstate *hstate;
	unsigned long address;
};

static int trial_map(struct trial *trial)
{
	size_t bytes = huge_page_size(trial->hstate);
	struct file *file;

	file = static_call(kernel_file_setup)("prezero-selftest", bytes, COMPAT_NORESERVE,
					      HUGETLB_ANONHUGE_INODE, ilog2(bytes));
	if (IS_ERR(file))
		return -EAGAIN;
	trial->address = vm_mmap(file, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
	fput(file);
	return IS_ERR_VALUE(trial->address) ? -EAGAIN : 0;
}

static void trial_unmap(struct trial *trial)
{
	vm_munmap(trial->address, huge_page_size(trial->hstate));
}

static int trial_fill(struct trial *trial)
{
	unsigned long offset;
	char sample[SAMPLE_BYTES];

	memset(sample, PATTERN, sizeof(sample));
	for (offset = 0; offset < huge_page_size(trial->hstate); offset += PAGE_SIZE) {
		if (copy_to_user((void __user *)(trial->address + offset), sample, sizeof(sample)))
			return -EAGAIN;
		cond_resched();
	}
	return 0;
}

static int trial_check_zero(struct trial *trial, const char *when)
{
	unsigned long offset;
	char sample[SAMPLE_BYTES];

	for (offset = 0; offset < huge_page_size(trial->hstate); offset += PAGE_SIZE) {
		if (copy_from_user(sample, (void __user *)(trial->address + offset),
				   sizeof(sample)))
			return -EAGAIN;
		if (memchr_inv(sample, 0, sizeof(sample))) {
			pr_err("self-test: a page is not zero %s\n", when);
			return -EIO;
		}
		cond_resched();
	}
	return 0;
}

/* The page that is mapped, with a reference. */
static struct folio *trial_folio(struct trial *trial)
{
	struct page *page;

	if (get_user_pages_fast(trial->address, 1, FOLL_WRITE, &page) != 1)
		return NULL;
	return page_folio(page);
}

/* Is this still the free, dirty page that it was left as? If not somebody else has had it. */
static int check_unmarked(struct folio *folio)
{
	int result = TRY_AGAIN;

	spin_lock_irq(kernel.hugetlb_lock);
	if (PageHuge(&folio->page) && folio_flag(folio, HPG_freed))
		result = mark_test(folio) ? -EIO : 0;
	spin_unlock_irq(kernel.hugetlb_lock);
	if (result == -EIO)
		pr_err("self-test: this kernel's free path does not end the mark\n");
	return result;
}

static int make_dirty(struct trial *trial, struct folio **folio)
{
	int err = trial_map(trial);

	if (err)
		return err;
	err = trial_fill(trial);
	if (!err) {
		*folio = trial_folio(trial);
		if (*folio)
			folio_put(*folio);
		else
			err = -EAGAIN;
	}
	trial_unmap(trial);
	return err;
}

static int run_once(struct trial *trial)
{
	struct folio *dirtied = NULL, *faulted;
	struct page_class *class;
	long skipped;
	int err;

	err = make_dirty(trial, &dirtied);
	if (err)
		return err;
	err = check_unmarked(dirtied);
	if (err)
		return err;

	class = class_of(trial->hstate, dirtied);
	if (zero_pages(class, 1) != 1)
		return TRY_AGAIN;

	skipped = atomic_long_read(&class->statistics[STAT_SKIPPED]);
	err = trial_map(trial);
	if (err)
		return err;
	err = trial_check_zero(trial, "after it was zeroed");
	faulted = trial_folio(trial);
	if (faulted)
		folio_put(faulted);
	if (!err)
		err = trial_fill(trial);
	trial_unmap(trial);
	if (err)
		return err;
	if (atomic_long_read(&class->statistics[STAT_SKIPPED]) == skipped || !faulted)
		return TRY_AGAIN;

	err = check_unmarked(faulted);
	if (err)
		return err;
	err = trial_map(trial);
	if (err)
		return err;
	err = trial_check_zero(trial, "after it was dirtied and freed");
	trial_unmap(trial);
	return err;
}

/* The smallest size with a free page that nobody has reserved. */
static struct hstate *choose_size(void)
{
	struct hstate *chosen = NULL;
	unsigned int i;

	for (i = 0; i < class_nr_sizes(); i++) {
		struct hstate *h = &kernel.hstates[i];

		if (READ_ONCE(h->free_huge_pages) > READ_ONCE(h->resv_huge_pages) &&
		    (!chosen || huge_page_order(h) < huge_page_order(chosen)))
			chosen = h;
	}
	return chosen;
}

static int run(void)
{
	struct trial trial = { .hstate = choose_size() };
	unsigned long address = kernel_address("hugetlb_file_setup");
	unsigned int attempt;
	int err = -EAGAIN;

	if (!address) {
		pr_err("self-test: this kernel has no hugetlb_file_setup\n");
		return -EIO;
	}
	static_call_update(kernel_file_setup, (typeof(hugetlb_file_setup) *)address);
	if (!trial.hstate || !current->mm)
		return -EAGAIN;
	for (attempt = 0; attempt < ATTEMPTS; attempt++) {
		err = run_once(&trial);
		if (err != TRY_AGAIN)
			break;
	}
	if (err == TRY_AGAIN) {
		pr_err("self-test: clean pages are zeroed again\n");
		err = -EIO;
	}
	return err;
}

/*
 * Returns 0 if it has passed, -EAGAIN if no page can be had to run it with, or -EIO if it has
 * failed; then no page is marked, now or later.
 */
int selftest_run(void)
{
	int err = 0;

	if (selftest_passed())
		return 0;
	mutex_lock(&selftest_mutex);
	if (failed)
		err = -EIO;
	else if (!passed)
		err = run();
	if (!err)
		WRITE_ONCE(passed, true);
	if (err == -EIO && !failed) {
		failed = true;
		zero_stop();
	}
	mutex_unlock(&selftest_mutex);
	return err;
}

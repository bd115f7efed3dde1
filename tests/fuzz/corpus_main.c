/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * tests/fuzz/corpus_main.c - runs a fuzz target over the files of a corpus, without libFuzzer.
 *
 * Each file runs whole, then cut and with a bit flipped at up to 64 places spread over it: what
 * is deterministic in a fuzzer is worth having in every test run. Says so in TAP; an empty or missing
 * corpus fails.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz.h"

#define INPUT_BYTES_MAX (1U << 20)
#define PLACES_MAX 64U

/* From a buffer of the exact length, so that a read behind its end is seen by a sanitizer. */
static void run_copy(const uint8_t *data, size_t data_bytes)
{
	uint8_t *copy = malloc(data_bytes ? data_bytes : 1);

	if (!copy)
		abort();
	if (data_bytes)
		memcpy(copy, data, data_bytes);
	LLVMFuzzerTestOneInput(copy, data_bytes);
	free(copy);
}

static void run_variants(uint8_t *data, size_t data_bytes)
{
	size_t step = data_bytes / PLACES_MAX + 1;

	run_copy(data, data_bytes);
	for (size_t i = 0; i < data_bytes; i += step) {
		run_copy(data, i);
		data[i] ^= (uint8_t)(1U << (i % 8));
		run_copy(data, data_bytes);
		data[i] ^= (uint8_t)(1U << (i % 8));
	}
}

static int run_file(int dir_fd, const char *name, uint8_t *buf)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	while ((n = read(fd, buf + used, INPUT_BYTES_MAX - used)) > 0)
		used += (size_t)n;
	close(fd);
	if (n < 0)
		return -EIO;
	run_variants(buf, used);
	return 0;
}

int main(int argc, char **argv)
{
	uint8_t *buf = malloc(INPUT_BYTES_MAX);
	unsigned int n_files = 0;
	struct dirent *entry;
	DIR *dir;

	if (argc != 2 || !buf) {
		fprintf(stderr, "usage: %s CORPUS-DIRECTORY\n", argv[0]);
		return 2;
	}
	dir = opendir(argv[1]);
	if (!dir) {
		fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	while ((entry = readdir(dir))) {
		int r;

		if (entry->d_name[0] == '.')
			continue;
		r = run_file(dirfd(dir), entry->d_name, buf);
		if (r < 0) {
			fprintf(stderr, "%s/%s: %s\n", argv[1], entry->d_name, strerror(-r));
			return 1;
		}
		printf("ok %u - %s\n", ++n_files, entry->d_name);
	}
	closedir(dir);
	free(buf);
	if (!n_files) {
		fprintf(stderr, "%s: no corpus\n", argv[1]);
		return 1;
	}
	printf("1..%u\n", n_files);
	return 0;
}

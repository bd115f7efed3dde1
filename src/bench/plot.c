/* SPDX-License-Identifier: GPL-2.0-or-later */
/* bench/plot.c - plots of time against size, by gnuplot. */
#include "bench/plot.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "bench/process.h"

struct line {
	const char *key, *title;
};

struct plot {
	const char *file, *title;
	struct line line[3];
};

static const struct plot plots[] = {
	{"touch",
	 "Memory that a program can touch, 2M pages",
	 {{"touch_cold_s", "mapped and touched cold"}, {"touch_pool_s", "taken from the pool"}}},
	{"qemu",
	 "Start of QEMU, 2M pages",
	 {{"qemu_prealloc_s", "prealloc=on, all threads"},
	  {"qemu_pool_s", "from the pool"},
	  {"qemu_floor_s", "no memory touched"}}},
};

/* A block of "GiB seconds" for each line; what was not measured is left out. */
static unsigned int write_data(FILE *script, const json_t *curve, const struct line *line,
			       unsigned int number)
{
	unsigned int n_points = 0;
	size_t i;
	json_t *point;

	fprintf(script, "$line%u << EOD\n", number);
	json_array_foreach(curve, i, point) {
		json_t *seconds = json_object_get(point, line->key);
		double bytes = (double)json_integer_value(json_object_get(point, "bytes"));

		if (!json_is_real(seconds))
			continue;
		fprintf(script, "%g %g\n", bytes / (double)(1ULL << 30), json_real_value(seconds));
		n_points++;
	}
	fputs("EOD\n", script);
	return n_points;
}

static void write_plot(FILE *script, const json_t *curve, const struct plot *plot)
{
	static const char *const terminals[][2] = {{"svg size 800,500 dynamic", "svg"},
						   {"pngcairo size 1200,750", "png"}};
	unsigned int n_points[ARRAY_LEN(plot->line)] = {0}, n_lines = 0;

	for (unsigned int i = 0; i < ARRAY_LEN(plot->line) && plot->line[i].key; i++) {
		n_points[i] = write_data(script, curve, &plot->line[i], i);
		n_lines += n_points[i] > 0;
	}
	if (n_lines == 0)
		return;
	fprintf(script,
		"set title '%s'\nset xlabel 'GiB'\nset ylabel 'seconds'\nset logscale x 2\n"
		"set logscale y\nset grid\nset key outside bottom center horizontal\n",
		plot->title);
	for (size_t t = 0; t < ARRAY_LEN(terminals); t++) {
		const char *separator = "plot ";

		fprintf(script, "set terminal %s\nset output '%s.%s'\n", terminals[t][0],
			plot->file, terminals[t][1]);
		for (unsigned int i = 0; i < ARRAY_LEN(plot->line); i++) {
			if (n_points[i] == 0)
				continue;
			fprintf(script, "%s$line%u with linespoints linewidth 2 title '%s'",
				separator, i, plot->line[i].title);
			separator = ", ";
		}
		fputs("\nset output\n", script);
	}
}

static int run_gnuplot(const char *script, const char *directory, char *why, size_t why_bytes)
{
	/* `cd` in the script would need the directory's name quoted. */
	const char *const argv[] = {"env", "-C", directory, "gnuplot", "-", NULL};
	struct process gnuplot;
	int status, r = process_start(argv, &gnuplot);

	if (r < 0) {
		snprintf(why, why_bytes, "cannot start gnuplot: %s", strerror(-r));
		return r;
	}
	if (send(gnuplot.talk_fd, script, strlen(script), MSG_NOSIGNAL) < 0)
		r = -errno;
	shutdown(gnuplot.talk_fd, SHUT_WR);
	status = process_wait(&gnuplot);
	if (r == 0 && status != 0)
		r = -EIO;
	if (r < 0) {
		int length = snprintf(why, why_bytes, "gnuplot ended with status %d: ", status);

		process_messages(&gnuplot, why + length, why_bytes - (size_t)length);
	}
	process_done(&gnuplot);
	return r;
}

static int prepare(const char *directory, char *why, size_t why_bytes)
{
	if (!program_in_path("gnuplot")) {
		snprintf(why, why_bytes, "no gnuplot");
		return -ENOENT;
	}
	if (mkdir(directory, 0755) < 0 && errno != EEXIST) {
		int r = -errno;

		snprintf(why, why_bytes, "cannot make %s: %s", directory, strerror(-r));
		return r;
	}
	return 0;
}

static void write_threads(FILE *script, const json_t *points)
{
	json_t *point;
	size_t i;

	fputs("$line << EOD\n", script);
	json_array_foreach(points, i, point) {
		fprintf(script, "%d %g\n",
			(int)json_integer_value(json_object_get(point, "threads")),
			json_real_value(json_object_get(point, "seconds")));
	}
	fputs("EOD\nset title 'Memory reserved and zeroed, 2M pages'\nset xlabel 'threads'\n"
	      "set ylabel 'seconds'\nset yrange [0:*]\nset grid\nset nokey\nset logscale x 2\n"
	      "set terminal svg size 800,500 dynamic\nset output 'threads.svg'\n"
	      "plot $line using 1:2:xticlabels(1) with linespoints linewidth 2\nset output\n"
	      "set terminal pngcairo size 1200,750\nset output 'threads.png'\n"
	      "plot $line using 1:2:xticlabels(1) with linespoints linewidth 2\nset output\n",
	      script);
}

static void write_curve(FILE *script, const json_t *curve)
{
	for (size_t i = 0; i < ARRAY_LEN(plots); i++)
		write_plot(script, curve, &plots[i]);
}

static int draw(void (*write)(FILE *script, const json_t *points), const json_t *points,
		const char *directory, char *why, size_t why_bytes)
{
	AUTO_FREE char *text = NULL;
	size_t text_bytes;
	FILE *script;
	int r = prepare(directory, why, why_bytes);

	if (r < 0)
		return r;
	script = open_memstream(&text, &text_bytes);
	if (!script)
		return -ENOMEM;
	write(script, points);
	if (fclose(script) == EOF)
		return -ENOMEM;
	return run_gnuplot(text, directory, why, why_bytes);
}

int plot_threads(const json_t *points, const char *directory, char *why, size_t why_bytes)
{
	return draw(write_threads, points, directory, why, why_bytes);
}

int plot_curve(const json_t *curve, const char *directory, char *why, size_t why_bytes)
{
	return draw(write_curve, curve, directory, why, why_bytes);
}

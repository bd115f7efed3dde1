// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * host/log.c - what the kernel has logged.
 *
 * Guarantees: reading takes nothing out of the log.
 */
#include <string.h>
#include <sys/klog.h>

#include "base/io.h"
#include "host/host.h"
#include "host/internal.h"

#define LOG_READ_ALL 3
#define LOG_BUFFER_BYTES 10
#define IMAGINED_BYTES (1 << 20)

int host_read_log(const struct host *host, char **ret)
{
	bool is_imagined = host_is_imagined(host);
	int bytes = is_imagined ? IMAGINED_BYTES : klogctl(LOG_BUFFER_BYTES, NULL, 0);
	AUTO_FREE char *text = bytes > 0 ? calloc(1, (size_t)bytes + 1) : NULL;
	int r;

	if (!text)
		return bytes < 0 ? -errno : -ENOMEM;
	if (is_imagined)
		r = (int)read_file_at(host_root_fd(host), "var/log/dmesg", text, (size_t)bytes);
	else
		r = klogctl(LOG_READ_ALL, text, bytes) < 0 ? -errno : 0;
	if (r < 0)
		return r;
	*ret = TAKE_PTR(text);
	return 0;
}

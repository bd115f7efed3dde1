// SPDX-License-Identifier: LGPL-2.1-or-later
/*
 * client/list.c - status and segments, as JSON.
 */
#include "client/client.h"

int prezero_status_json(struct prezero *connection, char **ret)
{
	const struct wire_call call = {.method = WIRE_STATUS};
	struct answer answer;
	int r;

	if (!connection || !ret)
		return -EINVAL;
	r = connection_call(connection, &call, 0, &answer);
	if (r < 0)
		return r;
	if (answer.reply.error != WIRE_NO_ERROR)
		r = set_reply_error(connection, &call, &answer);
	else
		r = wire_format_status(&answer.reply.status, ret);
	answer_done(&answer);
	return r;
}

static int list_over(struct prezero *connection, struct channel *channel,
		     const struct wire_call *call, int (*each)(const char *segment_json, void *arg),
		     void *arg)
{
	bool continues = true;
	size_t i;
	int r = 0;

	while (r == 0 && continues) {
		struct answer answer;

		r = receive_answer(connection, channel, WIRE_LIST, GRACE_MS, &answer);
		if (r < 0)
			return r;
		continues = answer.reply.continues;
		if (answer.reply.error != WIRE_NO_ERROR) {
			r = set_reply_error(connection, call, &answer);
			answer_done(&answer);
			return r;
		}
		for (i = 0; i < answer.reply.list.n_segments && r == 0; i++) {
			AUTO_FREE char *text = NULL;

			r = wire_format_segment(&answer.reply.list.segments[i], &text);
			if (r == 0)
				r = each(text, arg);
		}
		answer_done(&answer);
	}
	return r;
}

/* Over a channel of its own: it may be long, its callback may use the connection, and ending it early
 * is closing it. */
int prezero_list_json(struct prezero *connection, const char *state,
		      int (*each)(const char *segment_json, void *arg), void *arg)
{
	const struct wire_call call = {.method = WIRE_LIST, .more = true, .list = {.state = state}};
	AUTO_FREE char *message = NULL;
	struct channel channel;
	size_t message_bytes;
	int r;

	if (!connection || !each)
		return -EINVAL;
	r = wire_encode_call(&call, &message, &message_bytes);
	if (r < 0)
		return set_error(connection, r, NULL, "list: the state is out of bounds");
	r = channel_open_and_send(&channel, connection->socket_path, message, message_bytes);
	if (r < 0)
		return set_channel_error(connection, r);
	r = list_over(connection, &channel, &call, each, arg);
	channel_close(&channel);
	return r;
}

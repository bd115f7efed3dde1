/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * daemon/methods.c - what a call means.
 *
 * Guarantees: every call is answered, or handed to a part that answers it.
 */
#include "daemon/methods.h"

#include <string.h>

#include "daemon/leases.h"
#include "daemon/lending.h"
#include "daemon/status.h"

static void get_info(struct connection *connection)
{
	static const char *const interfaces[] = {"org.varlink.service", "io.prezero.Pool"};
	struct wire_reply reply = {
		.get_info =
			{
				.vendor = "prezero",
				.product = "prezerod",
				.version = PREZERO_VERSION,
				.url = "",
				.interfaces = interfaces,
				.n_interfaces = ARRAY_LEN(interfaces),
			},
	};

	connection_reply(connection, &reply, -1);
}

static void get_interface_description(struct connection *connection, const char *interface)
{
	struct wire_reply reply = {0};

	if (!strcmp(interface, "io.prezero.Pool"))
		reply.get_interface_description.description = wire_pool_interface;
	else if (!strcmp(interface, "org.varlink.service"))
		reply.get_interface_description.description = wire_service_interface;
	else {
		reply.error = WIRE_INTERFACE_NOT_FOUND;
		reply.interface_not_found.interface = interface;
	}
	connection_reply(connection, &reply, -1);
}

void methods_call(struct daemon *daemon, struct connection *connection,
		  const struct wire_call *call)
{
	switch (call->method) {
	case WIRE_STATUS:
		status_reply(daemon, connection);
		break;
	case WIRE_LIST:
		status_list(daemon, connection, &call->list, call->more);
		break;
	case WIRE_TAKE:
		lending_take(daemon, connection, &call->take);
		break;
	case WIRE_GIVE:
		leases_give(daemon, connection, &call->give);
		break;
	case WIRE_GET_INFO:
		get_info(connection);
		break;
	case WIRE_GET_INTERFACE_DESCRIPTION:
		get_interface_description(connection, call->get_interface_description.interface);
		break;
	case WIRE_METHODS:
		break;
	}
}

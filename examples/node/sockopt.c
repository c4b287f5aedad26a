/* SPDX-License-Identifier: Apache-2.0 */
/*
 * setsockopt and getsockopt for Node, whose library has neither. The module uses
 * Node-API, so it fits every release.
 *
 *	cc -shared -fPIC -I/usr/include/node -o sockopt.node sockopt.c
 *
 * set(fd, level, option, buffer) and get(fd, level, option, buffer) return 0 or a
 * number of errno.
 */
#include <errno.h>
#include <node_api.h>
#include <sys/socket.h>

static napi_value call(napi_env env, napi_callback_info info, int sets)
{
	napi_value argv[4], result;
	size_t argc = 4, len = 0;
	int32_t n[3] = {-1, 0, 0}, failed = EINVAL;
	void *data = NULL;
	socklen_t size;

	napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
	if (argc == 4 &&
	    napi_get_buffer_info(env, argv[3], &data, &len) == napi_ok) {
		for (int i = 0; i < 3; i++)
			napi_get_value_int32(env, argv[i], &n[i]);
		size = (socklen_t)len;
		failed = sets ? setsockopt(n[0], n[1], n[2], data, size)
			      : getsockopt(n[0], n[1], n[2], data, &size);
		failed = failed ? errno : 0;
	}
	napi_create_int32(env, failed, &result);
	return result;
}

static napi_value set(napi_env env, napi_callback_info info)
{
	return call(env, info, 1);
}

static napi_value get(napi_env env, napi_callback_info info)
{
	return call(env, info, 0);
}

NAPI_MODULE_INIT()
{
	napi_value f;

	napi_create_function(env, "set", NAPI_AUTO_LENGTH, set, NULL, &f);
	napi_set_named_property(env, exports, "set", f);
	napi_create_function(env, "get", NAPI_AUTO_LENGTH, get, NULL, &f);
	napi_set_named_property(env, exports, "get", f);
	return exports;
}

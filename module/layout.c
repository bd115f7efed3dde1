// SPDX-License-Identifier: GPL-2.0-only
/*
 * Is the running kernel laid out as this module was compiled for?
 *
 * The module reads and writes structures that the kernel keeps to itself, and stands in front of
 * functions that no header declares. The kernel's own check of symbol versions covers none of that.
 * But the kernel carries a description of all its types (BTF), and that one is compared, member by
 * member and parameter by parameter, with what the compiler saw.
 *
 * A kernel that differs, or has no description, is refused unless the parameter `force` is set.
 */
#include <linux/bpf.h>
#include <linux/btf.h>
#include <linux/err.h>
#include <linux/hugetlb.h>
#include <linux/mm_types.h>
#include <linux/module.h>
#include <linux/static_call.h>

#include "hooks.h"
#include "prezero.h"

static bool force;
module_param_unsafe(force, bool, 0444);
MODULE_PARM_DESC(force, "load even if the kernel's layout is unknown or not the one compiled for");

/* The kernel's own description; NULL if it has none. */
static const struct btf *btf;

DEFINE_STATIC_CALL_NULL(kernel_get_btf, bpf_get_btf_vmlinux);
DEFINE_STATIC_CALL_NULL(kernel_find_btf, btf_find_by_name_kind);
DEFINE_STATIC_CALL_NULL(kernel_btf_type, btf_type_by_id);
DEFINE_STATIC_CALL_NULL(kernel_btf_name, btf_name_by_offset);

#define BIND(call, function)                                                                       \
	({                                                                                         \
		unsigned long address = kernel_address(#function);                                 \
		if (address)                                                                       \
			static_call_update(call, (typeof(function) *)address);                     \
		address != 0;                                                                      \
	})

static bool open_description(void)
{
	struct btf *found;

	if (!BIND(kernel_get_btf, bpf_get_btf_vmlinux) ||
	    !BIND(kernel_find_btf, btf_find_by_name_kind) ||
	    !BIND(kernel_btf_type, btf_type_by_id) || !BIND(kernel_btf_name, btf_name_by_offset))
		return false;
	found = static_call(kernel_get_btf)();
	btf = IS_ERR_OR_NULL(found) ? NULL : found;
	return btf;
}

static const struct btf_type *type_at(u32 id)
{
	return static_call(kernel_btf_type)(btf, id);
}

/* The type behind typedefs, const and the like. */
static const struct btf_type *plain_type(u32 id)
{
	const struct btf_type *type;

	for (;;) {
		type = type_at(id);
		if (!type)
			return NULL;
		switch (BTF_INFO_KIND(type->info)) {
		case BTF_KIND_TYPEDEF:
		case BTF_KIND_CONST:
		case BTF_KIND_VOLATILE:
		case BTF_KIND_RESTRICT:
		case BTF_KIND_TYPE_TAG:
			id = type->type;
			break;
		default:
			return type;
		}
	}
}

static const struct btf_type *find_type(const char *name, u8 kind)
{
	s32 id = static_call(kernel_find_btf)(btf, name, kind);

	return id > 0 ? type_at(id) : NULL;
}

static const char *name_of(u32 offset)
{
	return static_call(kernel_btf_name)(btf, offset) ?: "";
}

/* -- structures -- */

/* The offset of a member, also of an unnamed struct or union inside, or -ENOENT. */
static long member_offset_bytes(const struct btf_type *type, const char *name)
{
	const struct btf_member *member = btf_type_member(type);
	unsigned int i;

	for (i = 0; i < btf_type_vlen(type); i++, member++) {
		long offset_bytes = __btf_member_bit_offset(type, member) / BITS_PER_BYTE;
		const char *member_name = name_of(member->name_off);
		const struct btf_type *inner;
		long inner_bytes;

		if (!strcmp(member_name, name))
			return offset_bytes;
		inner = plain_type(member->type);
		if (*member_name || !inner || !btf_type_is_struct(inner))
			continue;
		/* Unnamed, so a part of this one; C nests them a few levels deep at most. */
		inner_bytes = member_offset_bytes(inner, name);
		if (inner_bytes >= 0)
			return offset_bytes + inner_bytes;
	}
	return -ENOENT;
}

struct known_member {
	const char *structure;
	const char *member;
	size_t offset_bytes;
};

/* clang-format off */
#define MEMBER(structure, member) { #structure, #member, offsetof(struct structure, member) }
#define FLAG(flag)		  { #flag, flag }
/* clang-format on */

static const struct known_member known_members[] = {
	MEMBER(hstate, resize_lock),
	MEMBER(hstate, order),
	MEMBER(hstate, nr_huge_pages),
	MEMBER(hstate, free_huge_pages),
	MEMBER(hstate, resv_huge_pages),
	MEMBER(hstate, hugepage_activelist),
	MEMBER(hstate, hugepage_freelists),
	MEMBER(hstate, nr_huge_pages_node),
	MEMBER(hstate, free_huge_pages_node),
	MEMBER(hstate, surplus_huge_pages_node),
	MEMBER(hstate, name),
	MEMBER(page, flags),
	MEMBER(page, _refcount),
	MEMBER(folio, lru),
	MEMBER(folio, mapping),
	MEMBER(folio, private),
	MEMBER(kernfs_node, priv),
	MEMBER(node, dev),
};

struct known_size {
	const char *structure;
	size_t bytes;
};

static const struct known_size known_sizes[] = {
	{ "hstate", sizeof(struct hstate) },
	{ "page", sizeof(struct page) },
	{ "folio", sizeof(struct folio) },
};

static bool structures_match(void)
{
	unsigned int i;
	bool match = true;

	for (i = 0; i < ARRAY_SIZE(known_sizes); i++) {
		const struct known_size *known = &known_sizes[i];
		const struct btf_type *type = find_type(known->structure, BTF_KIND_STRUCT);

		if (type && type->size == known->bytes)
			continue;
		pr_err("struct %s has %u bytes here, %zu where this module was compiled\n",
		       known->structure, type ? type->size : 0, known->bytes);
		match = false;
	}
	for (i = 0; i < ARRAY_SIZE(known_members); i++) {
		const struct known_member *known = &known_members[i];
		const struct btf_type *type = find_type(known->structure, BTF_KIND_STRUCT);
		long here_bytes = type ? member_offset_bytes(type, known->member) : -ENOENT;

		if (here_bytes == (long)known->offset_bytes)
			continue;
		pr_err("%s.%s is at %ld here, at %zu where this module was compiled\n",
		       known->structure, known->member, here_bytes, known->offset_bytes);
		match = false;
	}
	return match;
}

/* -- the flags of a huge page -- */

struct known_flag {
	const char *name;
	int value;
};

static const struct known_flag known_flags[] = {
	FLAG(HPG_restore_reserve), FLAG(HPG_migratable),  FLAG(HPG_temporary),
	FLAG(HPG_freed),	   FLAG(__NR_HPAGEFLAGS),
};

static bool has_flag(const struct btf_type *type, const struct known_flag *known)
{
	const struct btf_enum *value = btf_enum(type);
	unsigned int i;

	for (i = 0; i < btf_type_vlen(type); i++)
		if (!strcmp(name_of(value[i].name_off), known->name))
			return value[i].val == known->value;
	return false;
}

static bool flags_match(void)
{
	const struct btf_type *type = find_type("hugetlb_page_flags", BTF_KIND_ENUM);
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(known_flags); i++)
		if (!type || !has_flag(type, &known_flags[i])) {
			pr_err("%s is not %d here\n", known_flags[i].name, known_flags[i].value);
			return false;
		}
	return true;
}

/* -- functions -- */

/* v(oid), p(ointer), i(nteger, of any width, or bool or enum), or ? for what we have no use for. */
static char type_code(u32 id)
{
	const struct btf_type *type;

	if (!id)
		return 'v';
	type = plain_type(id);
	if (!type)
		return '?';
	if (btf_type_is_ptr(type))
		return 'p';
	return btf_type_is_int(type) || btf_is_any_enum(type) ? 'i' : '?';
}

/* Has the kernel a function of this name and type (see struct hook)? */
bool layout_function_matches(const char *symbol, const char *prototype)
{
	const struct btf_type *function, *type;
	const struct btf_param *param;
	unsigned int i;

	if (!btf)
		return force;
	function = find_type(symbol, BTF_KIND_FUNC);
	type = function ? type_at(function->type) : NULL;
	if (!type || btf_type_vlen(type) != strlen(prototype) - 1 ||
	    type_code(type->type) != prototype[0])
		return false;
	param = (const struct btf_param *)(type + 1);
	for (i = 0; i < btf_type_vlen(type); i++)
		if (type_code(param[i].type) != prototype[i + 1])
			return false;
	return true;
}

int layout_check(void)
{
	bool known = false;

	if (!open_description())
		pr_err("this kernel does not describe its types (CONFIG_DEBUG_INFO_BTF)\n");
	else
		known = structures_match() & flags_match();
	if (known)
		return 0;
	if (force) {
		pr_warn("loaded by force; pages may leak or be lost\n");
		return 0;
	}
	pr_err("not loaded: compile it for this kernel (or, at your peril, set force=1)\n");
	return -ENOEXEC;
}

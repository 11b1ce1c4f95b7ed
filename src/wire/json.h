#pragma once
// JSON both ways for every wire type, from one field table per type (the .cpp beside each header). The templates are
// instantiated there, so including this header costs nothing.
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::wire {

enum class UnknownKeys { kRefuse, kIgnore };

// INVALID_PARAMS with details {field, reason} for malformed JSON, a missing, unknown, mistyped or out-of-range field, a key given twice.
// Messages never quote values. Requests of clients refuse unknown keys; messages between our daemons ignore them, so
// that versions can differ.
template <class T>
base::Result<T> decode(std::string_view json, UnknownKeys unknown = UnknownKeys::kIgnore);

// One line, members in field-table order, absent optionals left out.
template <class T>
std::string encode(const T& value);

// JSON Schema (2020-12) of T, deterministic.
template <class T>
std::string json_schema();

// The spelling of an enumerator on the wire, also used in the database, in logs and in labels.
template <class E>
std::string_view enum_name(E value);
template <class E>
std::optional<E> enum_from_name(std::string_view name);

}  // namespace llorch::wire

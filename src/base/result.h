#pragma once
#include <tl/expected.hpp>
#include <utility>

#include "base/error.h"

namespace llorch::base {

// A value or an Error; ignoring one is a compile error (tl::expected itself is not [[nodiscard]]).
template <class T = void>
class [[nodiscard]] Result : public tl::expected<T, Error> {
 public:
  using tl::expected<T, Error>::expected;
  Result() = default;
  Result(tl::expected<T, Error> other) : tl::expected<T, Error>(std::move(other)) {}
};

[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code, std::string message);
[[nodiscard]] inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

template <class T>
T take(tl::expected<T, Error>&& result) {
  return std::move(*result);
}
inline void take(tl::expected<void, Error>&&) {}

}  // namespace llorch::base

#define LLORCH_CONCAT_INNER(a, b) a##b
#define LLORCH_CONCAT(a, b) LLORCH_CONCAT_INNER(a, b)
#define LLORCH_TRY_IMPL(tmp, ...)                                             \
  ({                                                                          \
    auto&& tmp = (__VA_ARGS__);                                               \
    if (!tmp) [[unlikely]]                                                    \
      return ::tl::unexpected<::llorch::base::Error>(std::move(tmp).error()); \
    ::llorch::base::take(std::move(tmp));                                     \
  })
// The value of a Result, or return its error from the enclosing function.
#define TRY(...) LLORCH_TRY_IMPL(LLORCH_CONCAT(try_result_, __COUNTER__), __VA_ARGS__)

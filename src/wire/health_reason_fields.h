#pragma once
// The field table of HealthReason, which stands in health and in the catalogue. Included only by the .cpp files of this directory.
#include "wire/field.h"
#include "wire/meta.h"

namespace llorch::wire {

template <>
struct Table<HealthReason> {
  using S = HealthReason;
  static Fields fields() { return {required("code", &S::code), required("human", &S::human)}; }
};

}  // namespace llorch::wire

#pragma once
// Numbers that name things inside orchestratord. Wire ids (JobId, WorkerId, PoolId) are in base/id.h.
#include <compare>
#include <cstdint>

namespace llorch::orchestratord::core::jobs {

template <class Tag>
struct Number {
  std::uint64_t value = 0;
  auto operator<=>(const Number&) const = default;
};

using RequestId =
    Number<struct RequestTag>;              // one question of an I/O thread; chosen by the shell, echoed in the answer
using CommitId = Number<struct CommitTag>;  // one write of the store
using ExecutionId = Number<struct ExecutionTag>;  // one attempt of one job on one worker; never reused
using Arrival = Number<struct ArrivalTag>;        // order of admission; the key of a live job
using ModelIndex = Number<struct ModelTag>;       // a model digest, interned
using GroupIndex = Number<struct GroupTag>;       // a model and where its jobs may run, interned; recycled when empty

}  // namespace llorch::orchestratord::core::jobs

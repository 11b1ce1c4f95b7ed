#pragma once
// The sealed payload of a live job, whichever database it comes from.
#include <optional>

#include "orchestratord/store/backend.h"
#include "orchestratord/store/payload/payload_keys.h"

namespace llorch::orchestratord::store {

// Columns from `column` on: key_slot, nonce, ciphertext. None: there is no payload, or no slot has that number.
template <class Row>
std::optional<PayloadRow> read_payload(const Row& row, int column) {
  const std::optional<std::int64_t> slot = row.optional_integer(column);
  if (!slot || *slot < 0 || *slot >= payload::kSlotsMax) return std::nullopt;
  return PayloadRow{static_cast<std::uint32_t>(*slot), row.text(column + 1), row.text(column + 2)};
}

}  // namespace llorch::orchestratord::store

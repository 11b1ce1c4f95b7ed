#pragma once
// The Store around a core: a mailbox and the one thread that steps it.
#include <memory>

#include "base/clock.h"
#include "orchestratord/store/store_core.h"

namespace llorch::orchestratord::store {

// REQUIRES: `clock` is the core's and outlives the store.
std::unique_ptr<Store> start_store_thread(std::unique_ptr<StoreCore> core, const base::Clock& clock);

}  // namespace llorch::orchestratord::store

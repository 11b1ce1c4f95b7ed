#pragma once
// Which models a pool holds in its host's memory for workers that are to start soon. Pure.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "wire/pool.h"

namespace llorch::orchestratord::core::placement {

// Of one boot of one pool. Those that nobody has wanted for longest go first.
class StagingShelf {
 public:
  struct Wish {
    std::string model_ref;
    std::int64_t bytes = 0;      // of its files
    std::int64_t bytes_max = 0;  // of the pool
    std::int64_t now_ms = 0;
  };
  // What to order so that the model gets there: first those that go for it. Empty: it is there, on its way, or larger than all
  // the room. An order that the pool's reports, `told`, do not confirm in time is given again.
  struct DesiredStates {
    std::vector<std::string> unstage;
    bool stage = false;
  };
  DesiredStates want(const Wish& wish, const std::vector<wire::StagedModel>& told);

 private:
  struct Entry {
    std::int64_t bytes = 0;
    std::int64_t wanted_ms = 0;
    std::int64_t ordered_ms = 0;
  };
  void take(const std::vector<wire::StagedModel>& told, std::int64_t now_ms);

  std::map<std::string, Entry> entries_;  // by reference
};

}  // namespace llorch::orchestratord::core::placement

#pragma once
// The counters of orchestratord in both name families, the one without a prefix and orchd_*. Only this directory includes
// prometheus-cpp.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orchestratord/core/counts.h"
#include "orchestratord/core/view.h"
#include "wire/catalog.h"

namespace llorch::orchestratord::http {

struct StreamGauges {
  std::int64_t streams = 0;
  std::int64_t clients = 0;
  std::int64_t bytes_held = 0;
  std::int64_t relays_paused = 0;
};

// Thread-safe.
class Metrics {
 public:
  struct Options {
    std::string engine_version;  // this build
    std::string algorithm;       // of placement
  };
  explicit Metrics(Options options);
  ~Metrics();

  void count(const core::Count& count);
  void count(const core::CountPlacement& placement);
  // An error answered to a client, by its code.
  void error(std::string_view code);
  // A model's checksum was compared with the one it should have. `failure`: "checksum" or "changed_file"; empty: it has it.
  void verification(std::string_view failure);
  // An attempt to load a model of models.preload.
  void preload(bool succeeded);
  // One pass of the core that dispatched something.
  void scheduling_latency_ms(double ms);
  // Jobs that a start could not read back.
  void unreadable(std::int64_t jobs);
  // Jobs whose spans a collector took ("exported"), or that were dropped.
  void traced(std::string_view outcome, std::int64_t jobs);

  // Prometheus text, version 0.0.4. `log_lines_dropped`: since the process began.
  std::string render(const core::Gauges& gauges, const StreamGauges& streams,
                     const std::vector<wire::CatalogModel>& models, std::int64_t log_lines_dropped);

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace llorch::orchestratord::http

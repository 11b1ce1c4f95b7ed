#pragma once
// Has a model fetched, and shows how far it is.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "cli/context.h"
#include "wire/catalog.h"

namespace llorch::cli::models {

// Draws a pull on standard error: one line of a terminal, a line per step, or an object per step,
// {"event":"pull_progress","pull":{...}}. Not thread-safe.
class PullDisplay {
 public:
  enum class Form : std::uint8_t { kBar, kLines, kJson };
  static Form form(bool json);
  // `columns`: of the terminal, asked anew for each line; 0: nobody knows.
  PullDisplay(Form form, std::string name, std::function<void(std::string_view)> write,
              std::function<std::size_t()> columns)
      : form_(form), name_(std::move(name)), write_(std::move(write)), columns_(std::move(columns)) {}

  void show(const wire::PullStatus& status);
  void finish();  // wipes the line

 private:
  std::string line(const wire::PullStatus& status) const;

  const Form form_;
  const std::string name_;
  const std::function<void(std::string_view)> write_;
  const std::function<std::size_t()> columns_;
  std::string shown_;  // step that was shown last
  bool is_drawn_ = false;
};

// /v2/catalog/models/NAME, and what follows it.
std::string path_of(const std::string& model_id, std::string_view what = "");

// How long orchestratord may be away. Longer than its restart takes, shorter than patience.
constexpr std::chrono::milliseconds kPullAwayMax{60'000};
// Waits for a model that is on its way, as long as it takes. Errors: the pull's own; CANCELLED at Ctrl-C, and the pull goes on; UNREACHABLE: nobody answered for `away_max`, and the
// pull goes on when somebody does; others of the call.
base::Result<wire::CatalogModel> wait_for_pull(Api& api, wire::CatalogModel model, bool json,
                                               std::chrono::milliseconds away_max = kPullAwayMax);

// Before a pull is asked for. Errors: INVALID_PARAMS, with what to write instead: what has a slash and no scheme is neither a name nor a
// reference, and fails only once its pull has its turn.
base::Result<> check_pulled(const std::string& model);
// Asks for the model and waits for it.
base::Result<wire::CatalogModel> pull_model(Api& api, const wire::CreateCatalogModelRequest& request, bool json);

// The known model with this name; absent: there is none.
base::Result<std::optional<wire::KnownModel>> find_known(Api& api, const std::string& name);

// The name to run for what `run` and `chat` were asked for. A model that is being fetched is waited for. One that is not here
// but known, or a reference to one elsewhere, is fetched if `pull` says so, or if a person at the terminal does. What is a
// file, or a name that nobody knows, stays as it is: orchestratord explains it. Errors: MODEL_NOT_FOUND, also for a path where nothing
// lies; INVALID_PARAMS (no name); those of the calls.
base::Result<std::string> ensure_model(Api& api, const std::string& model, bool pull, bool json);

// Before a person types anything. Errors: MODEL_NOT_FOUND, for a plain name that is no model's.
base::Result<> check_name(const GlobalOptions& global, const std::string& model);

}  // namespace llorch::cli::models

#pragma once
// `orchestratord --backup` beside an orchestratord that serves: it writes the parts, this process makes the file of them.
#include "orchestratord/app/orchestrator.h"
#include "orchestratord/state_store/backup/backup.h"

namespace llorch::orchestratord::app {

// `options`: the configuration and token of the one that serves. Says on a terminal how far it is. Errors: UNREACHABLE, those
// of its answer, those of backup::Online.
base::Result<state_store::backup::Summary> online_backup(const OrchestratorOptions& options,
                                                         const state_store::backup::Paths& paths);

}  // namespace llorch::orchestratord::app

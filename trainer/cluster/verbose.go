package cluster

import "log/slog"

// VerboseLevel is the level of plans and cost tables: below slog.LevelInfo, above
// slog.LevelDebug.
const VerboseLevel = slog.LevelInfo - 2

// VerboseMark begins each line of VerboseLevel on a task's stderr. A task that was
// launched writes such lines, so that the job's logs have them. The launcher shows
// them, without the word, only if the user asks for them.
const VerboseMark = "plx: verbose: "

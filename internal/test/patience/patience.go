// Package patience defines how long tests wait for events that normally happen
// at once. The time is long enough for a machine that is ten times slower, so
// only a hang exceeds it.
package patience

import "time"

// Limit is the time that a test waits for an event before it fails.
const Limit = 2 * time.Minute

// Build is the time that a test waits for the go command, which may have to
// compile Gorgonia while other tests use all processors.
const Build = 10 * time.Minute

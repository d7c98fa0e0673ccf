// Package patience holds the bound of what tests wait for that normally comes at once.
// Only a hang meets it: a machine that is ten times slower passes.
package patience

import "time"

// Limit is how long a test waits before it fails.
const Limit = 2 * time.Minute

//go:build failpoint

package channel

import "github.com/plx-run/plx/internal/failpoint"

func init() { fault = failpoint.Here }

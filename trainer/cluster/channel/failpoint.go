//go:build failpoint

package channel

import "github.com/plx-run/plx/internal/test/failpoint"

func init() { fault = failpoint.Here }

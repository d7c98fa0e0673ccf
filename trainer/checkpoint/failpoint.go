//go:build failpoint

package checkpoint

import "github.com/plx-run/plx/internal/test/failpoint"

func init() { hook = failpoint.Here }

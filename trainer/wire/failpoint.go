//go:build failpoint

package wire

import "github.com/plx-run/plx/internal/test/failpoint"

func init() { fault = failpoint.Here }

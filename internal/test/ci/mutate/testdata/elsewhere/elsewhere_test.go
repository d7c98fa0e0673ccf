// Package elsewhere tests package untested.
package elsewhere

import (
	"testing"

	"github.com/plx-run/plx/internal/test/ci/mutate/testdata/untested"
)

func TestSum(t *testing.T) {
	if untested.Sum(1, 2) != 3 {
		t.Error("wrong")
	}
}

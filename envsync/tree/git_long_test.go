//go:build long

package tree

import (
	"cmp"
	"os"
	"strconv"
	"testing"
)

// The variable PLX_TEST_TREES sets the number of random trees to compare.
func TestScanExcludesLikeGitOnManyTrees(t *testing.T) {
	trees, err := strconv.Atoi(cmp.Or(os.Getenv("PLX_TEST_TREES"), "500"))
	if err != nil {
		t.Fatalf("PLX_TEST_TREES: %v", err)
	}
	compareWithGit(t, trees)
}

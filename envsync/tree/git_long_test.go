//go:build long

package tree

import (
	"cmp"
	"os"
	"strconv"
	"testing"
)

// PLX_TEST_TREES sets how many trees are compared.
func TestScanExcludesLikeGitOnManyTrees(t *testing.T) {
	trees, err := strconv.Atoi(cmp.Or(os.Getenv("PLX_TEST_TREES"), "500"))
	if err != nil {
		t.Fatalf("PLX_TEST_TREES: %v", err)
	}
	compareWithGit(t, trees)
}

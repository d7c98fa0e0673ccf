//go:build long

package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestFewOpenFiles runs plx on embedded clusters with a limit of 256 open
// files. A cluster that fits runs. plx refuses a larger cluster, or more
// hosts, with the reason and before it starts anything. With a limit of 20
// open files, it refuses every command.
func TestFewOpenFiles(t *testing.T) {
	t.Parallel()
	b := local(t)
	plx := b.plx
	b.plx = b.script("limited", "ulimit -n 256\nexec "+plx+` "$@"`)
	b.want(0, "launch", "--local", "16x1", "true")
	res := b.want(2, "launch", "--local", "64x1", "true")
	b.says(res, "an embedded cluster of 64 hosts opens 832 files, and the limit of this process is 256 (ulimit -Hn)")
	b.says(res, "hint: a smaller --local HOSTSxWORKERS")
	var many strings.Builder
	for i := range 300 {
		fmt.Fprintf(&many, "h%d\n", i)
	}
	res = b.want(2, "exec", "--hosts", b.file(t, many.String()), "true")
	b.says(res, "connections to 300 hosts take 324 files at least, and the limit of this process is 256 (ulimit -Hn)")
	b.plx = b.script("more", "ulimit -n 20\nexec "+plx+` "$@"`)
	res = b.want(125, "jobs")
	b.says(res, "the shell limits the number of open files to 20 (ulimit -n)")
	b.says(res, "hint: raise the limit")
}

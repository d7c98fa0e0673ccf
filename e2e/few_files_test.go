package e2e

import "testing"

// TestFewOpenFiles has plx run embedded clusters with 256 open files: one that fits runs,
// and a larger one is refused with the reason before anything starts.
func TestFewOpenFiles(t *testing.T) {
	t.Parallel()
	b := local(t)
	b.plx = b.script("limited", "ulimit -n 256\nexec "+b.plx+` "$@"`)
	b.want(0, "launch", "--local", "16x1", "true")
	res := b.want(2, "launch", "--local", "64x1", "true")
	b.says(res, "an embedded cluster of 64 hosts opens 832 files, and the limit of this process is 256 (ulimit -Hn)")
	b.says(res, "hint: a smaller --local HOSTSxWORKERS")
}

package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/pictures"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// ResNet trains on two hosts, from JPEG files that --copy has sent.
func TestResNetFromFiles(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	folder, _ := pictures.Write(t, 12)
	trains(b, folder, "resnet", "--depth=18", "--size=32", "--data="+filepath.Base(folder))
}

// trains runs an example for two steps on two hosts, with a folder of 12
// pictures that --copy sends.
func trains(b *bench, folder, name string, arguments ...string) {
	b.t.Helper()
	launch := []string{"launch", "--hosts", b.ResourceFile("h1", "h2"), "--ps", "none", "--copy", folder,
		testhosts.Binary(b.t, "github.com/plx-run/plx/examples/"+name), "--batch-size=4", "--steps=2", "--report-every=1", "--warm-up=0"}
	out := b.want(0, slices.Concat(launch, arguments)...).stdout
	for _, want := range []string{" classes | 12 pictures\n", "| step 1 | loss "} {
		if !strings.Contains(out, want) {
			b.t.Errorf("no %q in\n%s", want, out)
		}
	}
	b.hostsGone(0)
}

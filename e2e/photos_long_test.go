//go:build long

package e2e

import (
	"path/filepath"
	"testing"

	"github.com/plx-run/plx/internal/test/pictures"
	"github.com/plx-run/plx/internal/test/testhosts"
)

// Both networks train on two hosts, from JPEG and from TFRecord files that
// --copy has sent. TestResNetFromFiles tests the fourth combination.
func TestPicturesFromFiles(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2})
	folder, records := pictures.Write(t, 12)
	sent := filepath.Dir(records)
	fromRecords := []string{"--data=" + filepath.Join(filepath.Base(sent), "train-*"), "--classes=3", "--first-label=1"}
	for _, c := range []struct {
		name, folder string
		arguments    []string
	}{
		{"resnet", sent, append(fromRecords, "--depth=18", "--size=32")},
		{"inception", folder, []string{"--size=75", "--data=" + filepath.Base(folder)}},
		{"inception", sent, append(fromRecords, "--size=75")},
	} {
		trains(b, c.folder, c.name, c.arguments...)
	}
}

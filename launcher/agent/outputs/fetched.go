//go:build linux

package outputs

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
)

// version is a file as it was at some time.
type version struct {
	place, name    string
	size, modified int64
}

func versionOf(o protocol.HostOutput) version { return version{o.Place, o.Name, o.Size, o.Modified} }

// Unfetched counts the outputs in the job's own folder that nobody has fetched as they
// are now. Others stay when that folder is removed.
func Unfetched(f jobfolder.Folder) (n int, bytes int64, err error) {
	fetched, err := f.Fetched()
	if err != nil {
		return 0, 0, err
	}
	known := map[version]bool{}
	for _, o := range fetched {
		known[versionOf(o)] = true
	}
	inside := func(p place) bool { return strings.HasPrefix(p.dir, string(f)+string(filepath.Separator)) }
	err = each(f, inside, func(_ *os.Root, o protocol.HostOutput) error {
		if o.Damage == "" && !known[versionOf(o)] {
			n++
			bytes += o.Size
		}
		return nil
	})
	return n, bytes, err
}

// Note notes which outputs were fetched. It keeps what was noted before.
func Note(f jobfolder.Folder, fetched []protocol.HostOutput) error {
	before, err := f.Fetched()
	if err != nil {
		return err
	}
	known := map[[2]string]bool{}
	for _, o := range fetched {
		known[[2]string{o.Place, o.Name}] = true
	}
	for _, o := range before {
		if !known[[2]string{o.Place, o.Name}] {
			fetched = append(fetched, o)
		}
	}
	return f.WriteFetched(fetched)
}

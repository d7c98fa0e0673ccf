package hosts

import (
	"errors"
	"regexp"
	"strings"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/protocol"
)

var safeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// IsSafe reports whether a name that a host sent can be part of a path and of a shell
// command.
func IsSafe(name string) bool { return safeName.MatchString(name) }

// IsBlob reports whether path is that of a blob. Such a path is safe in a shell command.
func IsBlob(path string) bool {
	sum, ok := strings.CutPrefix(path, envsync.BlobPath(""))
	return ok && IsSafe(sum)
}

// ReadPlan reads how an agent says that a host is reached. It refuses a plan that could
// run anything but an agent, here or there.
func ReadPlan(p protocol.HostPlan) (hostfile.Host, error) {
	lines, err := hostfile.ParseLines([]string{p.Line})
	if err != nil {
		return hostfile.Host{}, err
	}
	line := lines[0] // ParseLines returns one host per line
	if jobFolder(line) != p.Folder || line.Name != p.Host || !IsBlob(p.Binary) {
		return line, errors.New("its name, folder or agent is not valid")
	}
	return line, nil
}

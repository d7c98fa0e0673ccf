package envsync

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// Platform is an operating system and a processor architecture. OS and Arch
// are the names that Go uses, such as "linux" and "amd64". If Go has no name,
// they are what uname prints, in lower case.
type Platform struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

func (p Platform) String() string { return p.OS + "/" + p.Arch }

// Facts describes a host: its platform, address, names and file system.
type Facts struct {
	Platform
	// ServerAddr is the host's address to which the SSH client connected, from
	// the variable SSH_CONNECTION. It is empty if SSH_CONNECTION is not set.
	ServerAddr string `json:"serverAddr,omitempty"`
	// HostName and BootID (the kernel's random boot_id) identify a machine:
	// two host names with equal values are one machine. A container has the
	// BootID of its machine.
	HostName string `json:"hostName"`
	BootID   string `json:"boot,omitempty"`
	// FileSystem is a random identifier, stored in the file ~/.plx/fsid. Hosts
	// with equal identifiers share their home folder.
	FileSystem string `json:"fsid"`
}

// ReadFacts parses the output of DescribeHost, which ran on a host. It
// validates every field, because the host is not trusted.
func ReadFacts(out []byte) (f Facts, err error) {
	if err := json.Unmarshal(out, &f); err != nil {
		return Facts{}, fmt.Errorf("the host printed no valid description of itself: %q: %w", short(string(out)), err)
	}
	for _, value := range []string{f.OS, f.Arch, f.ServerAddr, f.HostName, f.BootID} {
		if strings.ContainsFunc(value, unicode.IsControl) {
			return Facts{}, fmt.Errorf("the host's answer holds control characters: %q", short(value))
		}
	}
	switch {
	case f.OS == "" || f.Arch == "":
		return Facts{}, fmt.Errorf("the host did not report its operating system and architecture: %q", short(string(out)))
	case !fileSystemName().MatchString(f.FileSystem):
		return Facts{}, fmt.Errorf("~/.plx/fsid on the host is damaged (%q): remove it", short(f.FileSystem))
	}
	return f, nil
}

var fileSystemName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[[:xdigit:]]{32}$`) })

// goArchs maps a machine name that uname -m prints to Go's name of the
// architecture. Names that are equal in both, such as ppc64le, riscv64 and
// s390x, are not listed.
var goArchs = map[string]string{
	"x86_64": "amd64", "aarch64": "arm64", "i386": "386", "i486": "386", "i586": "386", "i686": "386",
	"armv6l": "arm", "armv7l": "arm", "armv8l": "arm", "loongarch64": "loong64",
}

// PlatformOf returns the Platform for the output of uname -s (kernel) and
// uname -m (machine).
func PlatformOf(kernel, machine string) Platform {
	return Platform{OS: strings.ToLower(kernel), Arch: cmp.Or(goArchs[machine], strings.ToLower(machine))}
}

// short truncates output of a host to 300 bytes for an error message.
func short(s string) string {
	const limit = 300
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return strings.TrimSpace(s)
}

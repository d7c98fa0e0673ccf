package venv

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Python describes a Python interpreter. The interpreter itself reports the
// values.
type Python struct {
	Implementation string `json:"implementation"` // name of the implementation, such as "cpython"
	Version        string `json:"version"`        // version number, such as "3.11.2"
	Platform       string `json:"platform"`       // operating system and processor, such as "linux-x86_64"
	ABI            string `json:"abi"`            // binary interface, such as "cpython-311-x86_64-linux-gnu"; "" if the interpreter reports none
}

// minor returns the first two numbers of the version, such as "3.11". Packages
// are installed for this version.
func (p Python) minor() string {
	parts := strings.SplitN(p.Version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func (p Python) String() string {
	name := p.Implementation
	if name == "cpython" || name == "" {
		name = "Python"
	}
	return fmt.Sprintf("%s %s (%s)", name, p.Version, cmp.Or(p.ABI, p.Platform))
}

// Fits reports whether packages that were installed for p also run under the
// interpreter other.
func (p Python) Fits(other Python) bool {
	return p.Implementation == other.Implementation && p.minor() == other.minor() && p.Platform == other.Platform && p.ABI == other.ABI
}

// script is a Python program that prints the fields of Python as JSON. It runs
// on every version from 2.7.
const script = `import json, platform, sys, sysconfig
print(json.dumps({"implementation": platform.python_implementation().lower(), "version": "%d.%d.%d" % sys.version_info[:3],
"platform": sysconfig.get_platform(), "abi": sysconfig.get_config_var("SOABI") or ""}))`

// askTime is the timeout for starting an interpreter. It is long, because the
// interpreter's library may be on a slow file server.
const askTime = 30 * time.Second

// Ask runs an interpreter without its installed packages and returns its
// description.
func Ask(ctx context.Context, interpreter string) (p Python, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, askTime, fmt.Errorf("it has not answered within %s", askTime))
	defer cancel()
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, interpreter, "-E", "-s", "-S", "-c", script)
	cmd.Stderr, cmd.WaitDelay, cmd.Dir = &said, time.Second, "/"
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &p)
	}
	if err == nil && p.Version == "" {
		err = errors.New("the interpreter did not print its version")
	}
	if err != nil {
		if last := lastLine(said.String()); last != "" {
			err = errors.New(last)
		}
		return p, fmt.Errorf("run %s: %w", interpreter, cmp.Or(context.Cause(ctx), err))
	}
	return p, nil
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

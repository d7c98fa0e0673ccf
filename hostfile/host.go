package hostfile

import (
	"cmp"
	"net/netip"
	"strconv"
	"strings"
)

// Host is one line of a resource file: a host and the devices that a job may
// use on it.
type Host struct {
	User     string  // login name; empty means that the line gives none
	Name     string  // name or address as written, an IPv6 address without brackets
	Port     int     // SSH port; 0 means that the line gives none
	Devices  Devices // devices that workers may use
	DataAddr string  // IP address that other hosts' tasks dial; empty means the default
	// Interface is the network interface for data; empty means the default.
	Interface string
	// Env is variables of the host's tasks, as NAME=VALUE in the order of the line, each
	// name once. A value may be a secret.
	Env []string
	Pos Position // file and line of the host
}

// Bare returns the host without Interface and Env, as it may be written to disk.
func (h Host) Bare() Host {
	h.Interface, h.Env = "", nil
	return h
}

// hasSettings reports whether the line has more than host and devices.
func (h Host) hasSettings() bool { return h.DataAddr != "" || h.Interface != "" || len(h.Env) > 0 }

// Kind is the way in which a line names the devices of its host.
type Kind int

const (
	// AllGPUs is every GPU found on the host except Devices.Excluded.
	// Where there is no GPU it is one CPU worker.
	AllGPUs Kind = iota
	// GPUs is the GPUs and MIG devices that Devices.IDs names, in that order.
	GPUs
	// CPUs is Devices.Count CPU workers.
	CPUs
	// ServerOnly is a server and no worker.
	ServerOnly
	// Slots is the GPUs 0 to Devices.Count-1 except Devices.Excluded. Where
	// there is no GPU it is that many CPU workers.
	Slots
)

// Devices names the devices of a host that workers may use. AllGPUs and Slots
// become single devices only after plx has probed the host; until then
// Excluded keeps the ids to leave out.
type Devices struct {
	Kind     Kind
	IDs      []ID // GPUs only: in the order given, at least one, none twice
	Count    int  // CPUs and Slots only: number of devices, at least 1
	Excluded []ID // AllGPUs and Slots only: GPUs to leave out, sorted; for Slots without UUIDs
}

// Position is a place in a resource file, or among lines given as flags.
type Position struct {
	File string
	Line int // number of the line, from 1
}

// String returns "file:line".
func (p Position) String() string {
	return p.File + ":" + strconv.Itoa(p.Line)
}

// String returns a line of a resource file. Parsing that line gives h, except
// for Pos.
func (h Host) String() string {
	var b strings.Builder
	if h.User != "" {
		b.WriteString(h.User + "@")
	}
	b.WriteString(bracketed(h.Name))
	if h.Port != 0 {
		b.WriteString(":" + strconv.Itoa(h.Port))
	}
	words := h.words()
	// A port needs its second colon, even with nothing after it.
	if h.Port != 0 || h.Devices.word() != "" {
		b.WriteString(":")
	}
	if len(words) > 0 {
		b.WriteString(" " + strings.Join(words, " "))
	}
	return b.String()
}

// words returns the words of the line after the address.
func (h Host) words() []string {
	words := h.devices()
	if h.DataAddr != "" {
		words = append(words, "addr="+h.DataAddr)
	}
	if h.Interface != "" {
		words = append(words, "nic="+h.Interface)
	}
	for _, e := range h.Env {
		name, value, _ := strings.Cut(e, "=")
		words = append(words, name+"="+quotedValue(value))
	}
	return words
}

// devices returns the words of the line for the host's devices.
func (h Host) devices() []string {
	var words []string
	if word := h.Devices.word(); word != "" {
		words = append(words, word)
	}
	if h.Devices.Kind == Slots {
		words = append(words, "slots="+strconv.Itoa(h.Devices.Count))
	}
	if len(h.Devices.Excluded) > 0 {
		words = append(words, "exclude="+joinIDs(h.Devices.Excluded))
	}
	return words
}

// word returns the word for the devices after the colon. It is "" for AllGPUs
// and Slots, which are written without one.
func (d Devices) word() string {
	switch d.Kind {
	case GPUs:
		return joinIDs(d.IDs)
	case CPUs:
		if d.Count == 1 {
			return "cpu"
		}
		return "cpu*" + strconv.Itoa(d.Count)
	case ServerOnly:
		return "ps"
	default:
		return ""
	}
}

func bracketed(name string) string {
	if strings.Contains(name, ":") {
		return "[" + name + "]"
	}
	return name
}

// key returns a text that is equal for two lines if and only if they name the
// same host: lower-case name or address, and port.
func (h Host) key() string {
	name := strings.ToLower(h.Name)
	if addr, err := netip.ParseAddr(name); err == nil {
		name = addr.Unmap().String()
	}
	return name + " " + strconv.Itoa(cmp.Or(h.Port, defaultPort))
}

package hostfile

import (
	"net/netip"
	"strconv"
	"strings"
)

// Host is one host of a resource file and what of it a job may use.
type Host struct {
	User     string   // login name; "" when not given
	Name     string   // name or address as written, an IPv6 address without brackets
	Port     int      // SSH port; 0 when not given
	Devices  Devices  // what workers may use
	DataAddr string   // IP address that other hosts' tasks dial; "" for the default
	Pos      Position // where the line stood
}

// Kind says how the devices of a host were named.
type Kind int

const (
	// AllGPUs is every GPU found on the host except Devices.Excluded.
	// Where there is no GPU it is one CPU worker.
	AllGPUs Kind = iota
	// GPUs is the GPUs with the ids in Devices.IDs, in that order.
	GPUs
	// CPUs is Devices.Count CPU workers.
	CPUs
	// ServerOnly is a server and no worker.
	ServerOnly
	// Slots is the GPUs 0 to Devices.Count-1 except Devices.Excluded. Where
	// there is no GPU it is that many CPU workers.
	Slots
)

// Devices is what workers may use of a host. Unlike ids, AllGPUs and Slots can
// only be told apart into devices once the host was probed; Excluded keeps the
// ids to leave out until then.
type Devices struct {
	Kind     Kind
	IDs      []int // GPUs only: at least one, none twice, in the order given
	Count    int   // CPUs and Slots only: at least 1
	Excluded []int // AllGPUs and Slots only: GPU ids to leave out, ascending
}

// Position is a place in a resource file, or among lines given as flags.
type Position struct {
	File string
	Line int // from 1
}

// String returns "file:line".
func (p Position) String() string {
	return p.File + ":" + strconv.Itoa(p.Line)
}

// String returns the line of a resource file that means h. Parsing it gives h
// again, but for Pos.
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

// words returns what stands after the address.
func (h Host) words() []string {
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
	if h.DataAddr != "" {
		words = append(words, "addr="+h.DataAddr)
	}
	return words
}

// word returns the devices as they stand after the colon, "" for those that
// are said by an option or by nothing.
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

// Format returns a resource file that means hosts, one canonical line each.
func Format(hosts []Host) string {
	var b strings.Builder
	for _, h := range hosts {
		b.WriteString(h.String())
		b.WriteByte('\n')
	}
	return b.String()
}

func joinIDs(ids []int) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = strconv.Itoa(id)
	}
	return strings.Join(words, ",")
}

func bracketed(name string) string {
	if strings.Contains(name, ":") {
		return "[" + name + "]"
	}
	return name
}

// key returns what two lines have in common when they name the same host.
func (h Host) key() string {
	name := strings.ToLower(h.Name)
	if addr, err := netip.ParseAddr(name); err == nil {
		name = addr.Unmap().String()
	}
	port := h.Port
	if port == 0 {
		port = defaultPort
	}
	return name + " " + strconv.Itoa(port)
}

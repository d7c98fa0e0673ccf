package hostfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Filter returns the hosts that include selects and exclude does not remove,
// in the order of hosts. If both are empty, it returns hosts unchanged. It
// does not modify its arguments.
//
// An entry is "host" for a whole host, or "host:ids" for some of its GPUs.
// gpu[01-04] and h1,h2 name several hosts, as in a resource file. "host:2222:"
// and "host:2222:ids" select among hosts that differ only by port, and "user@"
// among hosts that differ by user. If include is not empty, Filter drops every
// host that no entry of include names. If include and exclude name the same
// device, the device is removed. A host without any remaining device is
// dropped, together with its parameter server.
//
// The meaning of ids depends on the host's Devices.Kind:
//
//   - GPUs: include keeps only the named ids, in the host's own order;
//     exclude removes ids. An id that the host's line does not have is an
//     error. The beginning of a UUID stands for the only UUID on the line
//     that begins so.
//   - AllGPUs: include turns the host's kind into GPUs with the named ids;
//     exclude adds the ids to Devices.Excluded. Only a later probe shows
//     whether the host has these GPUs. An id that the host's own line
//     excludes is an error. Including by UUID and excluding by index, or the
//     reverse, is an error too, because only the probe can compare them.
//   - Slots: as AllGPUs, but UUIDs and ids of Devices.Count or more are
//     errors.
//   - CPUs, ServerOnly: an entry with ids is an error.
//
// An entry that matches no host is an error, and so is an entry with ids that
// matches several hosts. A result without any host is an error.
func Filter(hosts []Host, include, exclude []string) ([]Host, error) {
	kept, err := choose(hosts, "--include", include)
	if err != nil {
		return nil, err
	}
	removed, err := choose(hosts, "--exclude", exclude)
	if err != nil {
		return nil, err
	}
	var result []Host
	for i, h := range hosts {
		h.Devices.IDs = slices.Clone(h.Devices.IDs)
		h.Devices.Excluded = slices.Clone(h.Devices.Excluded)
		if len(include) > 0 && !kept[i].whole {
			if err := comparable(kept[i].ids, slices.Concat(removed[i].ids, h.Devices.Excluded)); err != nil {
				return nil, fmt.Errorf("host %s: %w", bracketed(h.Name), err)
			}
			h.Devices.narrow(kept[i].ids)
		}
		h.Devices.remove(removed[i].ids)
		dropped := len(include) > 0 && !kept[i].named || removed[i].whole
		if !dropped && !h.Devices.none() {
			result = append(result, h)
		}
	}
	if len(result) == 0 {
		return nil, wrong("--include and --exclude leave no host, expected at least one")
	}
	return result, nil
}

// choice combines all entries of --include, or all entries of --exclude, that
// name one host.
type choice struct {
	named bool // at least one entry names the host, with or without ids
	whole bool // at least one entry names the host without ids
	ids   []ID // GPU ids that the entries name, without duplicates
}

// choose parses the entries of the flag --include or --exclude. It returns a
// choice for each host, in the order of hosts.
func choose(hosts []Host, flag string, entries []string) ([]choice, error) {
	choices := make([]choice, len(hosts))
	for _, entry := range entries {
		if err := chooseOne(hosts, entry, choices); err != nil {
			if hint := deepSpeedFlags(hosts, flag, entry); hint != "" {
				err = hinted(hint, "expected one host and its ids, or ranges such as gpu[01-04]:0,1")
			}
			return nil, fmt.Errorf("%s %s: %w", flag, quoted(entry), err)
		}
	}
	return choices, nil
}

// chooseOne parses one entry of --include or --exclude. For each host that the
// entry names, it adds the entry's ids to the host's choice.
func chooseOne(hosts []Host, entry string, choices []choice) error {
	named, err := parseEntry(entry)
	if err != nil {
		return err
	}
	for _, wanted := range named {
		matches, ids, err := wanted.matches(hosts)
		if err != nil {
			return err
		}
		for _, i := range matches {
			choices[i].add(ids)
		}
	}
	return nil
}

// deepSpeedFlags converts an entry in DeepSpeed's format, in which @
// separates hosts (h1:0@h2:1), to the equivalent flags of plx. It returns ""
// for an entry in another format.
func deepSpeedFlags(hosts []Host, flag, entry string) string {
	var flags []string
	parts := strings.Split(entry, "@")
	for _, part := range parts {
		name, _, _ := strings.Cut(part, ":")
		if !slices.ContainsFunc(hosts, func(h Host) bool { return strings.EqualFold(h.Name, name) }) {
			return ""
		}
		flags = append(flags, flag+" "+part)
	}
	if len(parts) == 1 {
		return ""
	}
	return strings.Join(flags, " ")
}

func (c *choice) add(ids []ID) {
	c.named, c.whole = true, c.whole || len(ids) == 0
	for _, id := range ids {
		if !slices.Contains(c.ids, id) {
			c.ids = append(c.ids, id)
		}
	}
}

// parseEntry parses an entry of --include or --exclude: a line that names
// hosts, either with GPU ids or without any devices.
func parseEntry(entry string) ([]Host, error) {
	text, values, err := content(entry)
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, wrong("expected host or host:ids, found nothing")
	}
	named, err := parseHosts(text, values)
	if err != nil {
		return nil, err
	}
	for _, wanted := range named {
		d := wanted.Devices
		if wanted.hasSettings() || len(d.Excluded) > 0 || d.Kind != AllGPUs && d.Kind != GPUs {
			return nil, wrong("expected host or host:ids and nothing else")
		}
	}
	return named, nil
}

// matches returns the indices of the hosts that h names, or an error if h
// names none. h is an entry of --include or --exclude. An entry with GPU ids
// must name exactly one host. matches returns these ids in the form in which
// that host's line writes them.
func (h Host) matches(hosts []Host) (found []int, ids []ID, err error) {
	for i, other := range hosts {
		if h.names(other) {
			found = append(found, i)
		}
	}
	if len(found) == 0 {
		return nil, nil, hinted("hosts: "+someNames(hosts), "unknown host %s, expected one of the resource file", bracketed(h.Name))
	}
	if len(h.Devices.IDs) == 0 {
		return found, nil, nil
	}
	if len(found) > 1 {
		return nil, nil, hinted(`name the port: "host:2222:0,1"`, "host %s is both %s and %s, expected ids for one host",
			bracketed(h.Name), hosts[found[0]].Pos, hosts[found[1]].Pos)
	}
	ids, err = hosts[found[0]].lineIDs(h.Devices.IDs)
	return found, ids, err
}

// names reports whether h, which the user wrote in an option, names the host
// other. If h has no user or port, it matches every user or port.
func (h Host) names(other Host) bool {
	if h.User != "" && h.User != other.User {
		return false
	}
	h.Port = cmp.Or(h.Port, other.Port)
	return h.key() == other.key()
}

// lineIDs returns ids in the form in which the host's line writes them, for
// example as full UUIDs. It returns an error if the line excludes one of ids
// or does not contain it.
func (h Host) lineIDs(ids []ID) (as []ID, err error) {
	d := h.Devices
	if d.Kind == CPUs || d.Kind == ServerOnly {
		return nil, wrong("host %s has no GPU ids, at %s it has %q", bracketed(h.Name), h.Pos, d.word())
	}
	for _, id := range ids {
		own, err := h.lineID(id)
		if err != nil {
			return nil, h.moreSlots(ids, err)
		}
		as = append(as, own)
	}
	return as, nil
}

// moreSlots adds a hint to err if ids contains an index that is too large for
// the host's number of slots.
func (h Host) moreSlots(ids []ID, err error) error {
	last, index := slices.MaxFunc(ids, compare).Index()
	if h.Devices.Kind != Slots || !index || last < h.Devices.Count || last >= maxCount {
		return err
	}
	return hinted(fmt.Sprintf("slots=%d are the GPUs 0 to %d; with GPU %d its line is %q", h.Devices.Count, h.Devices.Count-1, last, fmt.Sprintf("%s slots=%d", bracketed(h.Name), last+1)), "%v", err)
}

// lineID does for a single id what lineIDs does for several.
func (h Host) lineID(id ID) (ID, error) {
	d, line := h.Devices, strings.Join(h.devices(), " ")
	var found []ID
	for _, own := range d.IDs {
		if id == own {
			return own, nil
		}
		if id.identifies(own) {
			found = append(found, own)
		}
	}
	n, index := id.Index()
	excluded := slices.ContainsFunc(d.Excluded, func(own ID) bool { return own.identifies(id) })
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", wrong("%s is the start of %s, at %s host %s has %q", id, joinIDs(found), h.Pos, bracketed(h.Name), line)
	case d.Kind == Slots && !index:
		return "", wrong("host %s counts its GPUs, at %s it has %q, expected ids from 0 to %d", bracketed(h.Name), h.Pos, line, d.Count-1)
	case d.Kind == GPUs, d.Kind == Slots && n >= d.Count, excluded:
		return "", wrong("host %s has no GPU %s, at %s it has %q", bracketed(h.Name), id, h.Pos, line)
	}
	return id, nil
}

// comparable returns an error if one list contains an index and the other a
// UUID. Only the host knows whether an index and a UUID mean the same GPU.
func comparable(kept, removed []ID) error {
	for _, a := range kept {
		for _, b := range removed {
			if a.kind() != b.kind() {
				return hinted("plx probe shows index and UUID of each GPU", "%s is included and %s excluded, expected both by index or both by UUID", a, b)
			}
		}
	}
	return nil
}

// narrow removes all devices except those in ids.
func (d *Devices) narrow(ids []ID) {
	switch d.Kind {
	case GPUs:
		d.IDs = slices.DeleteFunc(d.IDs, func(id ID) bool { return !slices.Contains(ids, id) })
	case AllGPUs, Slots:
		*d = Devices{Kind: GPUs, IDs: slices.Clone(ids)}
	}
}

// remove removes the devices in ids. The caller ensures that d.Excluded
// contains none of ids.
func (d *Devices) remove(ids []ID) {
	switch d.Kind {
	case GPUs:
		d.IDs = slices.DeleteFunc(d.IDs, func(id ID) bool {
			return slices.ContainsFunc(ids, func(other ID) bool { return id.identifies(other) || other.identifies(id) })
		})
	case AllGPUs, Slots:
		d.Excluded = append(d.Excluded, ids...)
		slices.SortFunc(d.Excluded, compare)
	}
}

// none reports whether the host has no device left for a worker.
func (d *Devices) none() bool {
	return d.Kind == GPUs && len(d.IDs) == 0 || d.Kind == Slots && len(d.Excluded) == d.Count
}

// someNames lists the names of at most 8 hosts for a hint.
func someNames(hosts []Host) string {
	const most = 8
	var names []string
	for _, h := range hosts[:min(len(hosts), most)] {
		names = append(names, bracketed(h.Name))
	}
	if len(hosts) > most {
		names = append(names, fmt.Sprintf("and %d more", len(hosts)-most))
	}
	return strings.Join(names, ", ")
}

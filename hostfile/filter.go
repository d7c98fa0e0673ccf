package hostfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Filter returns the hosts that the entries of include keep and those of
// exclude do not remove, in the order of hosts. It changes none of its
// arguments. With no entry at all it returns the hosts as they are.
//
// An entry is "host" for a whole host or "host:ids" for some of its GPUs;
// gpu[01-04] and h1,h2 name several hosts, as in a line;
// "host:2222:" and "host:2222:ids" pick one of several hosts that differ by
// port, "user@" one that differs by user. If include has entries, a host that
// none of them names is dropped. Where both speak of a device, exclude wins.
// A host that loses all its devices is dropped, its server with it.
//
// How ids act depends on how the host names its devices:
//
//   - GPUs: include keeps the ids named, in the host's own order; exclude
//     removes them. An id the host does not name is an error. The start of a
//     UUID names the only UUID of the line that begins with it.
//   - AllGPUs: include turns the host into GPUs with the ids named; exclude
//     adds to Devices.Excluded. Whether the host has these GPUs shows when it
//     is probed. An id the host's own line excludes is an error. So is to
//     include a GPU by UUID and to exclude one by index, or the reverse: only
//     the probe shows whether they are the same.
//   - Slots: as AllGPUs, but an id not below Devices.Count is an error, and so
//     is a UUID.
//   - CPUs, ServerOnly: an entry with ids is an error.
//
// An entry that names no host, or with ids more than one, is an error, and so
// is a result without any host.
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

// choice is the sum of all entries of one filter that name one host.
type choice struct {
	named bool // an entry names the host, with ids or without
	whole bool // an entry names the host without ids
	ids   []ID // the ids that entries name, none twice; empty means none
}

// choose reads the entries of one filter into a choice for each host.
func choose(hosts []Host, flag string, entries []string) ([]choice, error) {
	choices := make([]choice, len(hosts))
	for _, entry := range entries {
		if err := chooseOne(hosts, entry, choices); err != nil {
			if hint := entriesElsewhere(hosts, flag, entry); hint != "" {
				err = hinted(hint, "expected one host and its ids, or ranges such as gpu[01-04]:0,1")
			}
			return nil, fmt.Errorf("%s %s: %w", flag, quoted(entry), err)
		}
	}
	return choices, nil
}

// chooseOne adds one entry to the choices.
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

// entriesElsewhere returns the flags for an entry as DeepSpeed takes it, hosts with @
// between them: h1:0@h2:1. It is "" for others.
func entriesElsewhere(hosts []Host, flag, entry string) string {
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

// parseEntry reads an entry: a line with GPU ids or without devices.
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

// matches returns the indices of the hosts that the entry names, at least one, and the
// entry's ids as the line of the only host writes them.
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

// names reports whether h, an entry, names other.
func (h Host) names(other Host) bool {
	if h.User != "" && h.User != other.User {
		return false
	}
	h.Port = cmp.Or(h.Port, other.Port)
	return h.key() == other.key()
}

// lineIDs returns ids as the host's line writes them. It is an error if the line excludes
// one or does not name it.
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

// moreSlots adds advice to the error of ids that a host with slots does not have.
func (h Host) moreSlots(ids []ID, err error) error {
	last, index := slices.MaxFunc(ids, compare).Index()
	if h.Devices.Kind != Slots || !index || last < h.Devices.Count || last >= maxCount {
		return err
	}
	return hinted(fmt.Sprintf("slots=%d are the GPUs 0 to %d; with GPU %d its line is %q", h.Devices.Count, h.Devices.Count-1, last, fmt.Sprintf("%s slots=%d", bracketed(h.Name), last+1)), "%v", err)
}

// lineID is lineIDs for one.
func (h Host) lineID(id ID) (ID, error) {
	d, line := h.Devices, strings.Join(h.devices(), " ")
	var found []ID
	for _, own := range d.IDs {
		if id == own {
			return own, nil
		}
		if id.finds(own) {
			found = append(found, own)
		}
	}
	n, index := id.Index()
	excluded := slices.ContainsFunc(d.Excluded, func(own ID) bool { return own.finds(id) })
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

// comparable returns an error if only the host knows whether an id of both lists names the
// same GPU.
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

// narrow keeps only ids.
func (d *Devices) narrow(ids []ID) {
	switch d.Kind {
	case GPUs:
		d.IDs = slices.DeleteFunc(d.IDs, func(id ID) bool { return !slices.Contains(ids, id) })
	case AllGPUs, Slots:
		*d = Devices{Kind: GPUs, IDs: slices.Clone(ids)}
	}
}

// remove takes ids away. None of them may be excluded already.
func (d *Devices) remove(ids []ID) {
	switch d.Kind {
	case GPUs:
		d.IDs = slices.DeleteFunc(d.IDs, func(id ID) bool {
			return slices.ContainsFunc(ids, func(other ID) bool { return id.finds(other) || other.finds(id) })
		})
	case AllGPUs, Slots:
		d.Excluded = append(d.Excluded, ids...)
		slices.SortFunc(d.Excluded, compare)
	}
}

// none reports whether no device is left.
func (d *Devices) none() bool {
	return d.Kind == GPUs && len(d.IDs) == 0 || d.Kind == Slots && len(d.Excluded) == d.Count
}

// someNames lists the first few hosts for a hint.
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

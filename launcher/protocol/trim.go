package protocol

import (
	"reflect"
	"strings"
)

// maxText is the length in bytes to which Trim shortens each string of a
// message.
const maxText = 8 << 10

// Trim shortens long strings in a message from an agent. The driver stores
// many of these strings, and its verdict, which contains them, goes to every
// agent. Without Trim, one host with long texts could make that message too
// large.
func (m *Message) Trim() { trim(reflect.ValueOf(m)) }

func trim(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if text := v.String(); len(text) > maxText && v.CanSet() {
			v.SetString(strings.ToValidUTF8(text[:maxText], "") + "...")
		}
	case reflect.Pointer:
		if !v.IsNil() {
			trim(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			trim(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			trim(v.Index(i))
		}
	case reflect.Map:
		for key, value := range v.Seq2() {
			if value.Kind() != reflect.String {
				trim(value) // value is a pointer, so trim changes the map's element
				continue
			}
			cut := reflect.New(value.Type()).Elem()
			cut.Set(value)
			trim(cut)
			v.SetMapIndex(key, cut)
		}
	}
}

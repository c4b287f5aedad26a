package api

import (
	"strings"
	"testing"
)

// The error for a text that is not a subject names each kind of subject, and the form that only commands accept.
func TestParseSubjectNamesKinds(t *testing.T) {
	_, err := ParseSubject("curl")
	if err == nil {
		t.Fatal("a word without a kind is taken for a subject")
	}
	kinds := []Kind{KindPID, KindUser, KindCgroup, KindUnit, KindHost, KindContainer, KindGroup, KindLink, KindTo, KindRule, "name"}
	for _, kind := range kinds {
		if !strings.Contains(err.Error(), " "+string(kind)) {
			t.Errorf("%q does not name %s", err, kind)
		}
	}
}

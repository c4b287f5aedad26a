package main

import (
	"encoding/xml"
	"os"
	"regexp"
	"strings"
	"testing"
)

const page, picture = "../../../../docs/img/terminal.md", "../../../../docs/img/terminal.svg"

// The picture is the one of its page.
func TestPicture(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	if string(drawn) != drawPage(string(text)) {
		t.Errorf("%s is not the picture of %s: make picture", picture, page)
	}
}

// Every line of the page's block is in the picture, in its order, and in its description.
func TestDrawPage(t *testing.T) {
	const text = "# A title\n\nSome text.\n\n```console\n$ netnice 1 <2>\npid:1:  a & b\n# netnice ls\n> more\n```\n"
	got := drawPage(text)
	var read struct {
		Title string `xml:"title"`
		Desc  string `xml:"desc"`
		Lines []struct {
			Style string `xml:"style,attr"`
			Parts []struct {
				Class string `xml:"class,attr"`
				X     int    `xml:"x,attr"`
				Text  string `xml:",chardata"`
			} `xml:"text"`
		} `xml:"g"`
	}
	if err := xml.Unmarshal([]byte(got), &read); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, l := range read.Lines {
		line := ""
		for _, p := range l.Parts {
			line += p.Text
		}
		lines = append(lines, line)
	}
	want := "$ netnice 1 <2>\npid:1:  a & b\n# netnice ls\n> more"
	if strings.Join(lines, "\n") != want || strings.ReplaceAll(strings.TrimSpace(read.Desc), "\n\n", "\n") != want || read.Title != "A title" {
		t.Errorf("%q, %q, %q", lines, read.Title, read.Desc)
	}
	if first := read.Lines[0].Parts; first[0].X != margin || first[1].X != margin+2*letterWidth {
		t.Errorf("%v", first)
	}
	delays := regexp.MustCompile(`animation-delay: ([0-9.]+)s`).FindAllStringSubmatch(got, -1)
	if len(delays) != 4 || delays[0][1] >= delays[1][1] || delays[1][1] >= delays[2][1] || delays[2][1] != delays[3][1] {
		t.Errorf("%v", delays)
	}
}

// A line that is longer than the terminal is wide goes on in the next one.
func TestDrawPageLongLine(t *testing.T) {
	got := drawPage("# A title\n\n```console\n$ netnice ls\n" + strings.Repeat("ä", terminalColumns) + "bc\n```\n")
	for _, line := range []string{strings.Repeat("ä", terminalColumns), "bc"} {
		if !strings.Contains(got, ">"+line+"</text>") {
			t.Errorf("no line %s in\n%s", line, got)
		}
	}
}

"""The page of a server's concordance."""

import re

from regard.views import _assets, usages_page


def test_it_runs_its_own_script_and_asks_its_server_alone() -> None:
    html = usages_page("<b>&amp;</b>")
    policy = re.findall(r'Content-Security-Policy" content="([^"]*)"', html)[0]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in policy
    assert "<b>" not in html
    for source in (_assets.usages_script(), _assets.usages_style()):
        assert _assets.digest(source) in policy
        assert source in html
        assert not re.search(r"</script|</style|<!--|innerHTML|Storage|cookie", source)

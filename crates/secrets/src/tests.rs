//! What of words is a secret, and what of ordinary training flags is not.

use super::*;

#[test]
fn command_lines_are_shown_without_secrets() {
    let cases = [
        ("t|--api-key|abc def|--lr|1", "t|--api-key|(hidden)|--lr|1"),
        ("t|--password=a,b;c|x", "t|--password=(hidden)|x"),
        ("env|MYSQL_PWD=x|t", "env|MYSQL_PWD=(hidden)|t"),
        ("sh|-c|HF_TOKEN='a b' t; u", "sh|-c|HF_TOKEN='(hidden)' t; u"),
        ("sh|-c|HF_TOKEN='a b'c\"d e\" t; u", "sh|-c|HF_TOKEN=(hidden) t; u"),
        ("sh|-c|export GITHUB_PAT=x && t --token y -v", "sh|-c|export GITHUB_PAT=(hidden) && t --token (hidden) -v"),
        ("t|--db|postgres://u:pw@h:1/x", "t|--db|postgres://u:(hidden)@h:1/x"),
        ("t|--db=postgres://u:pw@h/x?password=y&a=b", "t|--db=postgres://u:(hidden)@h/x?password=(hidden)&a=b"),
        ("t|hf_abcdefghijklmnopqrst|--x=hf_abcdefghijklmnopqrst", "t|(hidden)|--x=(hidden)"),
        ("curl|-H|Authorization: Bearer abc", "curl|-H|Authorization: Bearer (hidden)"),
        ("curl|-H|Authorization: Basic abc=", "curl|-H|Authorization: Basic (hidden)"),
        ("curl|-H|X-Api-Key: abc", "curl|-H|X-Api-Key: (hidden)"),
        ("curl|-H|Cookie: a=b; c=d", "curl|-H|Cookie: (hidden)"),
        ("sh|-c|curl -H 'Cookie: a=b; c=d' https://h", "sh|-c|curl -H 'Cookie: (hidden)' https://h"),
        ("sh|-c|curl \"https://h/x?token=abc\" | t", "sh|-c|curl \"https://h/x?token=(hidden)\" | t"),
        ("t|{\"api_key\": \"abc\", \"lr\": 1}", "t|{\"api_key\": \"(hidden)\", \"lr\": 1}"),
        ("t|{\"env\":{\"HF_TOKEN\":\"a\\\"b\"}}", "t|{\"env\":{\"HF_TOKEN\":\"(hidden)\"}}"),
        ("t|{\"api_keys\": [\"a\", \"b\"], \"x\": 1}", "t|{\"api_keys\": (hidden), \"x\": 1}"),
        ("t|{api_key: abc, lr: 1}", "t|{api_key: (hidden), lr: 1}"),
        ("t|api_key: abc def\nlr: 1", "t|api_key: (hidden)\nlr: 1"),
        ("t|--env=HF_TOKEN=abc|-eHF_TOKEN=abc", "t|--env=HF_TOKEN=(hidden)|-eHF_TOKEN=(hidden)"),
        ("t|--opts=a=1,token=abc,b=2", "t|--opts=a=1,token=(hidden),b=2"),
        ("t|https://h/x?a=1&api_key=abc&b=2#c", "t|https://h/x?a=1&api_key=(hidden)&b=2#c"),
        ("t|https://h/x?sv=1&sig=abc%2Bd", "t|https://h/x?sv=1&sig=(hidden)"),
        ("t|https://h/#access_token=abc&x=1", "t|https://h/#access_token=(hidden)&x=1"),
        ("t|next=https%3A%2F%2Fh%2F%3Ftoken%3Dabc%26x%3D1", "t|next=https%3A%2F%2Fh%2F%3Ftoken%3D(hidden)%26x%3D1"),
        (
            "t|Protocol=https;AccountName=n;AccountKey=abc==;Suffix=x",
            "t|Protocol=https;AccountName=n;AccountKey=(hidden);Suffix=x",
        ),
        ("t|AccountKey=abc==;Suffix=x", "t|AccountKey=(hidden);Suffix=x"),
        ("t|jdbc:sqlserver://h:1;user=u;password=p w;x=y", "t|jdbc:sqlserver://h:1;user=u;password=(hidden);x=y"),
        ("t|--dsn|host=h password=pw user=u", "t|--dsn|(hidden)"),
        ("t|host=h password=pw user=u", "t|host=h password=(hidden) user=u"),
        ("t|--password|$uperS3cret|--hub_token|{braceS3cret", "t|--password|(hidden)|--hub_token|(hidden)"),
        ("t|--password|'$uper'|HF_TOKEN=$ecretThree99", "t|--password|(hidden)|HF_TOKEN=(hidden)"),
        ("sh|-c|t --password '$uper' --token \"$TOK\"", "sh|-c|t --password '(hidden)' --token \"$TOK\""),
        ("sshpass|-p|abc|ssh|h", "sshpass|-p|(hidden)|ssh|h"),
        ("sh|-c|mysql -uroot -pabc db", "sh|-c|mysql -uroot -p(hidden) db"),
        ("curl|-u|me:abc|https://h", "curl|-u|me:(hidden)|https://h"),
        ("wandb|login|--relogin|abc", "wandb|login|--relogin|(hidden)"),
        ("aws|configure|set|aws_secret_access_key|abc", "aws|configure|set|aws_secret_access_key|(hidden)"),
        ("t|cfg[\"token\"]=\"abc\"|user[password]=abc", "t|cfg[\"token\"]=\"(hidden)\"|user[password]=(hidden)"),
        ("t|<password>abc</password>", "t|<password>(hidden)</password>"),
        (
            "t|[{\"name\": \"HF_TOKEN\", \"value\": \"abc\"}]|<add key=\"Password\" value=\"abc\"/>",
            "t|[{\"name\": \"HF_TOKEN\", \"value\": \"(hidden)\"}]|<add key=\"Password\" value=\"(hidden)\"/>",
        ),
        ("openssl|-passin|pass:abc", "openssl|-passin|pass:(hidden)"),
    ];
    for (typed, shown) in cases {
        assert_eq!(hide_in_words(typed.split('|')).join("|"), shown, "{typed}");
    }
}

#[test]
fn passwords_by_a_short_name_and_lists_of_flags_are_shown_without_secrets() {
    let cases = [
        ("t|Server=h;Uid=sa;Pwd=x9;", "t|Server=h;Uid=sa;Pwd=(hidden);"),
        ("t|Driver={SQL};Server=h;PWD={a;b};Port=1", "t|Driver={SQL};Server=h;PWD=(hidden);Port=1"),
        ("t|--pwd|x9|--pwd=y|pwd=z", "t|--pwd|(hidden)|--pwd=(hidden)|pwd=(hidden)"),
        ("t|[\"--token\", \"x9\", \"--lr\", \"1\"]", "t|[\"--token\", \"(hidden)\", \"--lr\", \"1\"]"),
        ("t|{\"args\":[\"--lr\",1,\"--pwd\",\"x,9\"]}", "t|{\"args\":[\"--lr\",1,\"--pwd\",\"(hidden)\"]}"),
        ("t|['--hub_token',\n 'x 9']", "t|['--hub_token',\n '(hidden)']"),
        ("t|[\"--password\", 1234]", "t|[\"--password\", (hidden)]"),
    ];
    for (typed, shown) in cases {
        assert_eq!(hide_in_words(typed.split('|')).join("|"), shown, "{typed}");
    }
}

#[test]
fn what_is_no_secret_stays() {
    let cases = [
        "sh|-c|cd x; pwd; ls the key is y",
        "git|clone|ssh://git@h/x|http://127.0.0.1:80/a@b",
        "t|--pad_token|<|--max_tokens|10|--token|--next|x|C:\\a",
        "torchrun|--nproc-per-node=8|train.py|--lr=1e-4|--layers=[1,2]",
        "t|--token|{hub}|--password={{seed}}|--api-key|{secret:API_KEY}|--x=$HF_TOKEN|--token=${HF_TOKEN}",
        "sh|-c|t --token $tok --password $(cat key) --secret `cat x` -e HF_TOKEN=$tok",
        "t|--use_auth_token|True|--token|none|--token-id|5|--cookie=false",
        "t|--tokenizer|gpt2|--max-tokens|512|--key-value-heads|8|--pad-token-id|0|--keyframes|3|--token_type_ids|x",
        "t|{\"max_tokens\": 10, \"tokenizer\": \"gpt2\", \"pad_token_id\": 0, \"num_key_value_heads\": 8}",
        "docker|run|-p|8888:80|image:tag@sha256:0123456789abcdef|python|-m|x",
        "deepspeed|--world_info=eyJsb2NhbGhvc3QiOiBbMCwxLDIsM119|--revision|0123456789abcdef0123456789abcdef01234567",
        "t|/models/author/tokens/key.bin|s3://bucket/token/x|key-value|--key-file|/etc/key|lr: 1|a: b",
        "sh|-c|for i in 1 2; do python t.py --seed $i; done && echo done: ok",
        "apptainer|exec|--pwd|/work|--pwd=/a/b.c|env|PWD=/home/a|OLDPWD=~/x|--pwd|$PWD|--pwd=.|pwd: C:\\a|sh|-c|PWD=/x t; u",
        "t|[\"--token\", \"--next\", \"--tokenizer\", \"gpt2\", \"--pwd\", \"/work\"]|[\"--use_auth_token\", true, \"a\"]|[\"token\", \"x\"]",
        "t|--dataset|org/secret-santa|--run-name|token-mixing|--note|the forward-pass: slow",
    ];
    for typed in cases {
        assert_eq!(hide_in_words(typed.split('|')).join("|"), typed);
    }
}

#[test]
fn names_hold_no_secret() {
    let words = ["https://u:gpan0rlykei2ii@h/x?token=abcdefgh", "token-abcdef12=abcdef12"];
    for spot in find_in_words(&words).into_iter().flatten() {
        assert!(!spot.name.contains("gpan0rlykei2ii") && !spot.name.contains("abcdef12"), "{}", spot.name);
    }
}

#[test]
fn variables_are_shown_without_secrets() {
    let cases = [
        ("DB_URL", "postgres://u:pw@h/x", "postgres://u:(hidden)@h/x"),
        ("PIP_INDEX_URL", "https://u:pw@h/simple", "https://u:(hidden)@h/simple"),
        ("MY_PASSPHRASE", "x", HIDDEN),
        ("PWD", "/home/a", "/home/a"),
        ("pwd", "x", HIDDEN),
        ("LS_COLORS", "rs=0:di=01;34", "rs=0:di=01;34"),
    ];
    cases.iter().for_each(|(name, value, shown)| assert_eq!(hide_in_variable(name, value), *shown, "{name}"));
}
